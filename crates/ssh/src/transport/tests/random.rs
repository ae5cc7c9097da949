//! Seeded runs: bytes arrive in any pieces while both sides send, fill their buffers and replace
//! keys at random. Every message arrives once and in order, and nothing stalls.

use super::*;
use crate::provider::fake::Fake;
use std::collections::VecDeque;

/// Draws for one run.
struct Draw(Seeded);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes) as usize % bound
    }
}

/// One direction of the path.
#[derive(Default)]
struct Wire(VecDeque<u8>);

struct Side {
    end: End,
    /// Toward this side.
    arriving: Wire,
    sent: Vec<Vec<u8>>,
}

impl Side {
    fn new(transport: Transport, tx_bytes: usize) -> Self {
        let mut end = End::new(transport);
        end.tx = TxBuf::new(tx_bytes);
        Self {
            end,
            arriving: Wire::default(),
            sent: Vec::new(),
        }
    }

    /// One random act of this side; `toward_peer` takes what leaves.
    fn act(&mut self, draw: &mut Draw, toward_peer: &mut Wire) -> Result<(), Error> {
        match draw.below(4) {
            0 if self.end.transport.may_send() => {
                let message = data(draw.below(3000), self.sent.len() as u8);
                let end = &mut self.end;
                if end.transport.seal(&mut end.tx, &message)? {
                    self.sent.push(message);
                }
            }
            1 if draw.below(10) == 0 && self.end.transport.is_encrypted() => {
                // The first call stands for the end of authentication.
                self.end.transport.on_authenticated(NOW);
                self.end.transport.rekey(NOW)?;
            }
            2 => {
                self.end.transport.poll_transmit(NOW, &mut self.end.tx);
                let n = draw.below(self.end.tx.pending().len() + 1);
                toward_peer.0.extend(&self.end.tx.pending()[..n]);
                self.end.tx.consume(n);
            }
            _ => {
                let n = draw.below(self.arriving.0.len() + 1).min(2000);
                let bytes: Vec<u8> = self.arriving.0.drain(..n).collect();
                self.end.feed(&bytes)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, toward_peer: &mut Wire) -> Result<bool, Error> {
        let bytes: Vec<u8> = self.arriving.0.drain(..).collect();
        self.end.feed(&bytes)?;
        let output = self.end.take_output();
        toward_peer.0.extend(&output);
        Ok(!bytes.is_empty() || !output.is_empty())
    }
}

fn run(seed: u64, client: Transport, server: Transport) -> u32 {
    let mut draw = Draw(Seeded(seed));
    let mut client = Side::new(client, 6000);
    let mut server = Side::new(server, 6000);
    for step in 0..600 {
        let result = if draw.below(2) == 0 {
            client.act(&mut draw, &mut server.arriving)
        } else {
            server.act(&mut draw, &mut client.arriving)
        };
        assert_eq!(result, Ok(()), "seed {seed} step {step}");
    }
    loop {
        let a = client.flush(&mut server.arriving);
        let b = server.flush(&mut client.arriving);
        match (a, b) {
            (Ok(false), Ok(false)) => break,
            (Ok(_), Ok(_)) => {}
            (a, b) => unreachable!("seed {seed}: {a:?} {b:?}"),
        }
    }
    for (from, to) in [(&client, &server), (&server, &client)] {
        assert!(from.end.transport.may_send(), "seed {seed}: stalled");
        assert!(
            from.sent == to.end.received,
            "seed {seed}: not what was sent"
        );
    }
    client.end.transport.exchange.begun_count()
}

#[test]
fn nothing_is_lost_or_stalls_under_a_fake_provider() {
    let (mut exchanges, mut runs) = (0, 0);
    for seed in fullbore_testkit::seeds(0..300) {
        let config = |t: TransportConfig| ServerConfig {
            transport: t,
            host_keys: vec![test_key(7)],
            ..ServerConfig::default()
        };
        let client = Transport::client(
            Arc::new(ClientConfig {
                transport: rekeying(5_000 + seed * 100),
                ..ClientConfig::default()
            }),
            Box::new(Fake::new(seed)),
            NOW,
        );
        let server = Transport::server(
            Arc::new(config(rekeying(50_000))),
            Box::new(Fake::new(seed + 1)),
            NOW,
        );
        exchanges += run(seed, client, server);
        runs += 1;
    }
    // The first of each run and, on average, one more.
    assert!(exchanges >= 2 * runs, "{exchanges} in {runs} runs");
}

#[test]
fn nothing_is_lost_or_stalls_under_real_keys() {
    for (at, &cipher) in crate::cipher::Cipher::ALL.iter().enumerate() {
        for mac in crate::cipher::Mac::ALL {
            let config = TransportConfig {
                ciphers: vec![cipher],
                macs: vec![*mac],
                strict_kex: at % 2 == 0,
                ..rekeying(8_000)
            };
            let seed = at as u64;
            run(seed, client_with(config.clone()), server_with(config));
        }
    }
}

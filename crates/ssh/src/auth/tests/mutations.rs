//! Bytes changed on their way, by seeded chance: no panic, and no way in.

use super::*;
use fullbore_base::Rng;

const SEEDS: u64 = 3000;

fn random_attempt(rng: &mut Rng, key: &Arc<PrivateKey>) -> Attempt {
    match rng.below(5) {
        0 => Attempt::None,
        1 => Attempt::Password(Secret::from(&b"pw"[..])),
        2 => Attempt::KeyboardInteractive,
        n => attempt(key, n == 3),
    }
}

/// Flips, cuts or lengthens; one time in four leaves it as it is.
fn mutate(rng: &mut Rng, message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    match rng.below(4) {
        0 => {}
        1 => bytes.truncate(rng.index(bytes.len() + 1)),
        2 => bytes.push(u8::try_from(rng.below(256)).expect("a byte")),
        _ => {
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
    }
    bytes
}

/// The application refuses every proof, and says to every query that the key would do.
fn refuse(server: &mut Server, rng: &mut Rng) -> Result<(), Error> {
    let Some(request) = server.request() else {
        return Ok(());
    };
    let answer = match request.credential {
        Credential::KeyQuery { .. } => AuthAnswer::Accept,
        Credential::Interactive { .. } if rng.one_in(2) => {
            AuthAnswer::Prompt(Prompts::password("again: "))
        }
        Credential::Password(_) if rng.one_in(2) => AuthAnswer::ChangePassword("old".to_owned()),
        Credential::None
        | Credential::Key { .. }
        | Credential::Password(_)
        | Credential::PasswordChange { .. }
        | Credential::Interactive { .. } => AuthAnswer::Reject,
    };
    server.answer(answer)
}

/// One connection until an error or quiet; `is_server_hurt` says whose input is changed.
fn run(seed: u64, is_server_hurt: bool, key: &Arc<PrivateKey>) -> Result<(), Error> {
    let mut rng = Rng::seeded(seed);
    let config = ServerAuth {
        interactive_prompt: None,
        is_none_asked: rng.one_in(2),
        ..all_methods()
    };
    let mut pair = Pair::new(config);
    for _ in 0..20 {
        if pair.client.signature_request().is_none() && pair.client.prompts().is_none() {
            let _ = pair.client.authenticate(random_attempt(&mut rng, key));
        }
        if let Some(prompts) = pair.client.prompts() {
            let answers = vec![Secret::default(); prompts.prompts.len()];
            pair.client.answer_prompts(answers)?;
        }
        while let Some(message) = pair.client.poll_message(&plain_session()) {
            let message = if is_server_hurt {
                mutate(&mut rng, &message)
            } else {
                message.to_vec()
            };
            pair.server.handle_message(&plain_session(), &message)?;
            refuse(&mut pair.server, &mut rng)?;
            assert!(!pair.server.is_authenticated(), "seed {seed}");
        }
        while let Some(message) = pair.server.poll_message() {
            let message = if is_server_hurt {
                message.to_vec()
            } else {
                mutate(&mut rng, &message)
            };
            pair.client.handle_message(&message)?;
        }
    }
    Ok(())
}

#[test]
fn changed_bytes_never_panic_and_never_let_anybody_in() {
    let key = key(data!("ed25519"));
    for seed in fullbore_testkit::seeds(0..SEEDS) {
        for is_server_hurt in [true, false] {
            if let Err(error) = run(seed, is_server_hurt, &key) {
                // A fault of the peer's bytes, never of ours.
                let is_misuse = matches!(error, Error::ApiMisuse(_));
                assert!(
                    !is_misuse,
                    "seed {seed}, server hurt: {is_server_hurt}: {error:?}"
                );
            }
        }
    }
}

//! Two stacks on one thread, joined by a wire of the tests.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use fullbore_base::Rng;

use super::*;

type Frames = VecDeque<(IpAddr, IpAddr, Vec<u8>)>;

/// One direction.
#[derive(Debug, Default)]
struct Pipe {
    frames: Frames,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Frames that a direction holds: little, so that senders are blocked now and then.
const FRAMES_MAX: usize = 8;

#[derive(Debug)]
struct Cable {
    input: Arc<Mutex<Pipe>>,
    output: Arc<Mutex<Pipe>>,
}

impl Wire for Cable {
    fn headroom(&self) -> usize {
        3
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.input.lock().expect("unharmed");
        let Some((remote, local, bytes)) = pipe.frames.pop_front() else {
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        pipe.writer.take().into_iter().for_each(Waker::wake);
        sink(Received::Segment(Arrival {
            local,
            remote,
            bytes: &bytes,
            is_verified: false,
            is_marked: false,
        }));
        Poll::Ready(Ok(()))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, batch: &mut Batch) -> Poll<io::Result<()>> {
        let mut pipe = self.output.lock().expect("unharmed");
        if pipe.frames.len() >= FRAMES_MAX {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let first = batch.segments()[0];
        let bytes = batch.segment(&first).to_vec();
        pipe.frames.push_back((first.local, first.remote, bytes));
        pipe.reader.take().into_iter().for_each(Waker::wake);
        batch.take(1);
        Poll::Ready(Ok(()))
    }
}

fn pair() -> (Net, Net) {
    let pipes = [Arc::default(), Arc::default()];
    let clock = Clock::start();
    let make = |i: usize| {
        let cable = Cable {
            input: Arc::clone(&pipes[i]),
            output: Arc::clone(&pipes[1 - i]),
        };
        let (net, driver) = Net::new(StackConfig::default(), Box::new(cable), clock);
        tokio::spawn(driver);
        net
    };
    (make(0), make(1))
}

fn near(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn far(port: u16) -> SocketAddr {
    ([10, 0, 0, 2], port).into()
}

async fn echo(mut connection: Connection) {
    let mut buf = vec![0; 64 * 1024];
    loop {
        match connection.read(&mut buf).await.expect("readable") {
            0 => return,
            n => connection.write_all(&buf[..n]).await.expect("writable"),
        }
    }
}

/// Writes all of `bytes`, closes, and reads to the end at the same time.
async fn exchange(mut connection: Connection, bytes: Vec<u8>) -> Vec<u8> {
    let (mut written, mut all, mut buf) = (0, Vec::new(), vec![0; 50_000]);
    poll_fn(|cx| {
        while written < bytes.len()
            && let Poll::Ready(n) = connection.poll_write(cx, &bytes[written..])
        {
            written += n.expect("writable");
            if written == bytes.len() {
                connection.shutdown();
            }
        }
        while let Poll::Ready(n) = connection.poll_read(cx, &mut buf) {
            match n.expect("readable") {
                0 => return Poll::Ready(()),
                n => all.extend_from_slice(&buf[..n]),
            }
        }
        Poll::Pending
    })
    .await;
    all
}

#[tokio::test]
async fn bytes_go_there_and_back_on_many_connections() {
    let (one, two) = pair();
    let listener = two.listen(far(22), &Config::default()).expect("free");
    tokio::spawn(async move {
        while let Ok(connection) = listener.accept().await {
            tokio::spawn(echo(connection));
        }
    });
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..20 {
        let config = Config::default();
        let connected = one.connect(near(0), far(22), &config).await;
        let connection = connected.expect("somebody listens");
        assert_eq!(connection.remote(), Some(far(22)));
        tasks.spawn(async move {
            let mut bytes = vec![0; 300_000 + i * 1000];
            Rng::seeded(i as u64).fill(&mut bytes);
            let back = exchange(connection, bytes.clone()).await;
            assert!(back == bytes);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("whole");
    }
    two.drained().await;
    one.drained().await;
    assert_eq!(one.connection_count(), 0);
}

#[tokio::test]
async fn a_port_without_a_listener_refuses() {
    let (one, _two) = pair();
    let refused = one.connect(near(0), far(23), &Config::default()).await;
    let error = refused.expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    one.drained().await;
}

#[tokio::test]
async fn a_dropped_connection_still_delivers_and_tcp_is_told_about() {
    let (one, two) = pair();
    let listener = two.listen(far(22), &Config::default()).expect("free");
    let mut near_end = one
        .connect(near(0), far(22), &Config::default())
        .await
        .expect("somebody listens");
    let mut far_end = listener.accept().await.expect("it came");
    let bytes = vec![7; 400_000];
    near_end.write_all(&bytes).await.expect("taken");
    let told = crate::driver::stream::Tunnel::tcp_info(&near_end).expect("ours");
    assert!(told.rtt > Duration::ZERO && told.snd_mss > 1000, "{told:?}");
    drop(near_end);
    let (mut all, mut buf) = (0, vec![0; 10_000]);
    loop {
        match far_end.read(&mut buf).await.expect("readable") {
            0 => break,
            n => all += n,
        }
    }
    assert_eq!(all, bytes.len());
    drop(far_end);
    one.drained().await;
}

#[tokio::test]
async fn nothing_waits_for_a_wire_that_is_gone() {
    let pipes: [Arc<Mutex<Pipe>>; 2] = [Arc::default(), Arc::default()];
    let cable = Cable {
        input: Arc::clone(&pipes[0]),
        output: Arc::clone(&pipes[1]),
    };
    let (net, driver) = Net::new(StackConfig::default(), Box::new(cable), Clock::start());
    let task = tokio::spawn(driver);
    let waiting = {
        let net = net.clone();
        tokio::spawn(async move { net.connect(near(0), far(1), &Config::default()).await })
    };
    tokio::task::yield_now().await;
    task.abort();
    let error = waiting.await.expect("ends").expect_err("no wire");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

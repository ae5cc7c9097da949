//! The SFTP client engine against OpenSSH's `sftp-server` over a pipe; passed over where that is
//! not installed.

use std::cell::RefCell;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fullbore::transfer::FileIo;
use fullbore_base::{ByteQueue, Instant, Rng};
use fullbore_sftp::client::{
    BlockError, Blocks, BulkId, BulkReport, Client, Config, Event, Handle, RequestId,
};
use fullbore_sftp::proto::{Attrs, OpenFlags, Reply, Request};
use fullbore_testkit::pass_over;

const SERVER: &str = "/usr/lib/openssh/sftp-server";

struct Session {
    child: Child,
    to: Option<ChildStdin>,
    from: ChildStdout,
    client: Client,
    out: ByteQueue,
    view: Vec<u8>,
    file: OneFile,
}

struct OneFile(Option<RefCell<File>>);

impl Blocks for OneFile {
    fn read_at(
        &mut self,
        _: BulkId,
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, BlockError> {
        let file = self.0.as_ref().expect("a transfer has its file").borrow();
        FileIo::read_at(&*file, offset, slices)
    }

    fn write_at(&mut self, _: BulkId, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let file = self.0.as_ref().expect("a transfer has its file").borrow();
        FileIo::write_at(&*file, offset, bytes)
    }
}

const NOW: Instant = Instant::ZERO;

impl Session {
    fn start(folder: &Path) -> Option<Self> {
        if !Path::new(SERVER).exists() {
            pass_over("OpenSSH's sftp-server");
            return None;
        }
        let mut child = Command::new(SERVER)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is there");
        let to = child.stdin.take();
        let from = child.stdout.take().expect("piped");
        Some(Self {
            child,
            to,
            from,
            client: Client::new(Config {
                // What fits the pipes and the server's buffers: nobody reads while we write.
                outstanding_bytes_max: 1,
                ..Config::default()
            }),
            out: ByteQueue::new(1 << 20),
            view: Vec::new(),
            file: OneFile(None),
        })
    }

    /// Talks until `event` comes.
    fn until(&mut self, event: impl Fn(Event) -> bool) {
        let mut block = vec![0; 300_000];
        loop {
            while self
                .client
                .poll_transmit(NOW, &mut self.out, &mut self.file)
            {
                let to = self.to.as_mut().expect("still open");
                to.write_all(self.out.as_slice()).expect("it reads");
                self.out.consume(self.out.len());
            }
            while let Some(is) = self.client.poll_event() {
                if event(is) {
                    return;
                }
                assert_ne!(is, Event::Failed, "{:?}", self.client.error());
            }
            let n = self.from.read(&mut block).expect("it writes");
            assert!(n > 0, "it ended");
            self.view.extend_from_slice(&block[..n]);
            let taken = self
                .client
                .handle_input(NOW, &self.view, &mut self.file)
                .expect("OpenSSH is honest");
            self.view.drain(..taken);
        }
    }

    fn call(&mut self, request: &Request<'_>) -> fullbore_sftp::client::ReplyMessage {
        let id: RequestId = self.client.request(NOW, request).expect("room");
        self.until(|event| event == Event::Reply(id));
        self.client.take_reply(id).expect("it came")
    }

    fn open(&mut self, path: &[u8], flags: OpenFlags) -> Handle {
        let attrs = Attrs::EMPTY;
        let reply = self.call(&Request::Open { path, flags, attrs });
        match reply.reply() {
            Reply::Handle(bytes) => Handle::new(bytes).expect("lawful"),
            other => panic!("not opened: {other:?}"),
        }
    }

    fn done(&mut self, id: BulkId) -> BulkReport {
        self.until(|event| event == Event::BulkDone(id));
        let report = self.client.take_bulk(id).expect("done");
        assert!(report.error.is_none(), "{:?}", report.error);
        report
    }

    fn end(mut self) {
        self.to = None;
        assert!(self.child.wait().expect("it ends").success());
    }
}

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("made");
    path
}

#[test]
fn files_of_every_size_go_up_and_down() {
    let folder = scratch("openssh_sizes");
    let Some(mut session) = Session::start(&folder) else {
        return;
    };
    session.until(|event| event == Event::Ready);
    for size in [0usize, 1, 32_767, 32_768, 32_769, 261_120, 5 << 20] {
        let mut content = vec![0; size];
        Rng::seeded(size as u64).fill(&mut content);
        std::fs::write(folder.join("source"), &content).expect("written");

        let new = OpenFlags::WRITE
            .with(OpenFlags::CREAT)
            .with(OpenFlags::TRUNC);
        let handle = session.open(b"up", new);
        let source = File::open(folder.join("source")).expect("there");
        session.file = OneFile(Some(RefCell::new(source)));
        let id = session
            .client
            .start_put(NOW, handle.clone(), 0)
            .expect("room");
        assert_eq!(session.done(id).end, size as u64);
        let handle_bytes = handle.as_bytes();
        session.call(&Request::Close {
            handle: handle_bytes,
        });
        assert!(std::fs::read(folder.join("up")).expect("there") == content);

        let handle = session.open(b"up", OpenFlags::READ);
        let target = File::create(folder.join("down")).expect("made");
        session.file = OneFile(Some(RefCell::new(target)));
        // The hint is right, then too small, then too large.
        for hint in [size as u64, 0, size as u64 + 100_000] {
            let id = session
                .client
                .start_get(NOW, handle.clone(), 0, hint)
                .expect("room");
            assert_eq!(session.done(id).end, size as u64);
            assert!(std::fs::read(folder.join("down")).expect("there") == content);
        }
        let handle_bytes = handle.as_bytes();
        session.call(&Request::Close {
            handle: handle_bytes,
        });
    }
    assert_eq!(
        session.client.read_len(),
        63 * 4096,
        "limits@openssh.com was asked"
    );
    session.end();
}

#[test]
fn files_that_lie_about_their_size_are_read_to_their_end() {
    let folder = scratch("openssh_proc");
    let Some(mut session) = Session::start(&folder) else {
        return;
    };
    let handle = session.open(b"/proc/self/status", OpenFlags::READ);
    let target = File::create(folder.join("status")).expect("made");
    session.file = OneFile(Some(RefCell::new(target)));
    let id = session.client.start_get(NOW, handle, 0, 0).expect("room");
    assert!(session.done(id).end > 100);
    let text = std::fs::read_to_string(folder.join("status")).expect("text");
    assert!(text.starts_with("Name:\tsftp-server"), "{text}");
    session.end();
}

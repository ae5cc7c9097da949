//! What a copy tells whoever watches it: a progress bar, JSON lines, a log.

/// One thing that happened. Names are as given or found, unescaped bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A file is about to be copied.
    Started {
        /// The file's number in this run.
        file: u64,
        /// Source, with its prefix.
        source: &'a [u8],
        /// Target, with its prefix.
        target: &'a [u8],
        /// Size as far as known.
        size: Option<u64>,
    },
    /// A copy goes on from what an interrupted one left.
    Resumed {
        /// The file's number.
        file: u64,
        /// Bytes that are already there.
        offset: u64,
        /// How that was proved.
        proof: &'a str,
    },
    /// Bytes of the file that are at their place by now, those of a resumed part included.
    Moved {
        /// The file's number.
        file: u64,
        /// Bytes so far.
        bytes: u64,
    },
    /// The content was compared from end to end.
    Verified {
        /// The file's number.
        file: u64,
        /// How.
        method: &'a str,
    },
    /// The file is complete under its final name.
    Done {
        /// The file's number.
        file: u64,
        /// Its size.
        bytes: u64,
    },
    /// Something that does not make the copy wrong.
    Warning {
        /// What it is about, with its prefix.
        path: &'a [u8],
        /// What happened and what follows.
        text: &'a str,
    },
    /// A file or folder that was not copied.
    Failed {
        /// The file's number, if copying it had begun.
        file: Option<u64>,
        /// The file, with its prefix.
        path: &'a [u8],
        /// Why, and what to do.
        text: &'a str,
    },
}

/// Watches a copy. Called on the thread that copies; should not block.
pub trait Observer {
    /// Something happened.
    fn notice(&self, event: &Event<'_>);
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn notice(&self, _: &Event<'_>) {}
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files complete under their final names.
    pub files: u64,
    /// Folders made or found.
    pub folders: u64,
    /// Bytes moved, without what was already there.
    pub bytes: u64,
    /// Files and folders that were not copied.
    pub failed: u64,
    /// Warnings said.
    pub warnings: u64,
}

impl Summary {
    /// Whether every file is right: exit code 0.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.failed == 0
    }
}

//! Whether a folder that is there is the beginning of a copy of this very source.
//!
//! `cp -r d host:new` makes `new` where there is none, and `new/d` where there is one; so the same command
//! twice means two things. If the first was interrupted, the second is to go on with it. So a folder that a
//! run makes from a source carries a mark until everything is in it: an empty file with the name of a
//! temporary one (`.d.0123456789abcdef.fullbore`), which only the same source to the same folder makes,
//! and which is no content to anybody who copies the folder on.
//!
//! ```text
//! new is not there ──► made, marked ──► filled ──┬─ gone through to its end ──► mark removed; next time: new/d
//!                                                └─ interrupted, or the session lost ──► next time: new
//! ```

use super::side::{Fault, FaultKind, OpenHow, Side};
use super::temp::{join, temp_path};

/// Mode of a mark.
const MARK_MODE: u32 = 0o600;

/// Where the mark is of a copy of the folder `name`, which is `source_id` among all, made as `folder`.
pub(super) fn mark_path(folder: &[u8], name: &[u8], source_id: &[u8]) -> Vec<u8> {
    // No file has such an id.
    temp_path(&join(folder, name), &join(source_id, b"/"))
}

/// Whether there is such a mark.
pub(super) async fn is_marked<D: Side>(target: &D, mark: &[u8]) -> Result<bool, Fault> {
    match target.lstat(mark).await {
        Ok(_) => Ok(true),
        Err(fault) if fault.kind == FaultKind::Lost => Err(fault),
        Err(_) => Ok(false),
    }
}

/// Makes the mark. Where it cannot be made the copy goes on without.
pub(super) async fn set_mark<D: Side>(target: &D, mark: &[u8]) -> Result<(), Fault> {
    let made = async {
        let file = target.open(mark, OpenHow::Create(MARK_MODE)).await?;
        target.release(file).await;
        Ok(())
    };
    unless_lost(made.await)
}

/// Removes the mark. Where it stays, the next run goes on where nothing is left to do.
pub(super) async fn remove_mark<D: Side>(target: &D, mark: &[u8]) -> Result<(), Fault> {
    unless_lost(target.remove(mark).await)
}

fn unless_lost(result: Result<(), Fault>) -> Result<(), Fault> {
    match result {
        Err(fault) if fault.kind == FaultKind::Lost => Err(fault),
        Ok(()) | Err(_) => Ok(()),
    }
}

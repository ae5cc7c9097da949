//! Devices that are slow on purpose.

use std::time::Duration;

/// Does what a slow device does to whoever calls it: takes `time` without using the processor. Not for
/// waiting until something else has happened.
pub fn seek(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

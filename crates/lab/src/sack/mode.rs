//! How a receiver acknowledges: honestly, or in one of the ways that cost a sender most.

/// What a receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Acknowledges what arrives, and SACKs what is behind a hole.
    Honest,
    /// The same without SACK.
    NoSack,
    /// Holds the cumulative acknowledgement and repeats it, with nothing else: the floor of all that
    /// follow, which hold it likewise.
    Dupack,
    /// A D-SACK in front of each SACK.
    DsackStorm,
    /// New data, and blocks at its heels, so that a list is searched from its head for each.
    FindFirst,
    /// Almost the whole window in each option.
    CoverAll,
    /// Blocks of one segment anywhere.
    Random,
    /// The newest even-numbered segment alone: with each acknowledgement there is a newer one delivered, and
    /// everything before it is to be judged.
    Rack,
    /// SACKs data, then throws it away.
    Renege,
    /// Offers the smallest segments, and SACKs parts of them.
    Split,
    /// Blocks outside the window, inverted, empty, overlapping.
    Garbage,
}

/// All of them, the honest first.
pub const MODES: [Mode; 11] = [
    Mode::Honest,
    Mode::NoSack,
    Mode::Dupack,
    Mode::DsackStorm,
    Mode::FindFirst,
    Mode::CoverAll,
    Mode::Random,
    Mode::Rack,
    Mode::Renege,
    Mode::Split,
    Mode::Garbage,
];

impl Mode {
    /// Its name on the command line and in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::NoSack => "no-sack",
            Self::Dupack => "dupack",
            Self::DsackStorm => "dsack-storm",
            Self::FindFirst => "find-first",
            Self::CoverAll => "cover-all",
            Self::Random => "random",
            Self::Rack => "rack",
            Self::Renege => "renege",
            Self::Split => "split",
            Self::Garbage => "garbage",
        }
    }

    /// The mode called `name`.
    ///
    /// # Errors
    /// Names all there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = MODES.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| {
            let names = MODES.map(Self::name).join(", ");
            format!("\"{name}\" is no way to acknowledge: {names}")
        })
    }

    /// Whether it holds the cumulative acknowledgement back.
    #[must_use]
    pub const fn is_hostile(self) -> bool {
        !matches!(self, Self::Honest | Self::NoSack)
    }

    /// Whether it offers SACK.
    #[must_use]
    pub const fn is_sack(self) -> bool {
        !matches!(self, Self::NoSack)
    }

    /// The MSS that it offers.
    #[must_use]
    pub const fn mss(self) -> u16 {
        if matches!(self, Self::Split) {
            MSS_SPLIT
        } else {
            MSS
        }
    }
}

/// The MSS of Ethernet.
const MSS: u16 = 1460;

/// The least that Linux follows a peer to.
const MSS_SPLIT: u16 = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_found_by_its_name_and_no_other() {
        for mode in MODES {
            assert_eq!(Mode::parse(mode.name()), Ok(mode));
        }
        assert!(Mode::parse("RACK").is_err_and(|e| e.contains("find-first")));
    }
}

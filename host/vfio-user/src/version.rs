//! What both ends tell each other first: the version, and what each can take.

use serde_json::{Value, json};
use zerocopy::IntoBytes;

use crate::connection::MAX_FDS;
use crate::wire::Version;

/// The version spoken here: 0.1, and so 0.0.
pub const MAJOR: u16 = 0;
/// See [`MAJOR`].
pub const MINOR: u16 = 1;

/// Most data bytes that a message carries; the specification's default.
pub const MAX_DATA: usize = 1 << 20;
/// Most DMA maps that a client may have at once; VFIO's own default.
pub const MAX_DMA_MAPS: usize = 65535;

/// What a peer said that it can take; what it left out is as the specification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// File descriptors in a message.
    pub max_msg_fds: usize,
    /// Data bytes in a message.
    pub max_data_xfer_size: usize,
}

impl Default for Capabilities {
    fn default() -> Self {
        Capabilities {
            max_msg_fds: 1,
            max_data_xfer_size: MAX_DATA,
        }
    }
}

impl Capabilities {
    /// Reads what followed the version: JSON and a NUL, or nothing. What cannot be read is taken as left out: a peer
    /// that says less than it can is served, slower.
    pub fn read(data: &[u8]) -> Self {
        let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
        let value: Value = serde_json::from_slice(text).unwrap_or_default();
        let said = |name, default| {
            value["capabilities"][name]
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(default)
        };
        let default = Capabilities::default();
        Capabilities {
            max_msg_fds: said("max_msg_fds", default.max_msg_fds),
            max_data_xfer_size: said("max_data_xfer_size", default.max_data_xfer_size),
        }
    }
}

/// The body of a VERSION message that this end sends: `minor`, and what this end can take.
pub fn body(minor: u16) -> Vec<u8> {
    let mut body = Version {
        major: MAJOR.into(),
        minor: minor.into(),
    }
    .as_bytes()
    .to_vec();
    let said = json!({"capabilities": {
        "max_msg_fds": MAX_FDS,
        "max_data_xfer_size": MAX_DATA,
        "max_dma_maps": MAX_DMA_MAPS,
        "pgsizes": 4096,
    }});
    body.extend(said.to_string().bytes());
    body.push(0);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_and_what_is_left_out_is_the_default() {
        let own = Capabilities::read(&body(1)[4..]);
        assert_eq!((own.max_msg_fds, own.max_data_xfer_size), (8, MAX_DATA));
        for text in [
            "",
            "{",
            "[]",
            "\0",
            "{\"capabilities\":{\"max_msg_fds\":-1}}",
        ] {
            assert_eq!(Capabilities::read(text.as_bytes()), Capabilities::default());
        }
        let some = Capabilities::read(b"{\"capabilities\":{\"max_msg_fds\":3}}\0rest");
        assert_eq!((some.max_msg_fds, some.max_data_xfer_size), (3, MAX_DATA));
    }
}

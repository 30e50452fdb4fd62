//! Changes at LUNs while the jobs run (`--at`).

use super::device::Control;
use super::value;

/// A change at a given time (`--at 200us lun3.depth=4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// From the start of the run, simulated ns.
    pub at_ns: u64,
    /// What changes.
    pub control: Control,
}

impl Event {
    /// Reads `200us` (without a unit: us) and `lun3.depth=4` or `lun3.weight=2`.
    ///
    /// # Errors
    /// What of it is malformed.
    pub fn parse(at: &str, change: &str) -> Result<Event, String> {
        let unit = if at.bytes().all(|b| b.is_ascii_digit()) {
            "us"
        } else {
            ""
        };
        let at_ns = crate::time::parse_ns(&format!("{at}{unit}")).map_err(|e| e.to_string())?;
        let wrong = || format!("`{change}` is not of the form lun3.depth=4 or lun3.weight=2");
        let (what, value) = change.split_once('=').ok_or_else(wrong)?;
        let (lun, what) = what
            .strip_prefix("lun")
            .and_then(|rest| rest.split_once('.'))
            .ok_or_else(wrong)?;
        let number = |text: &str, max| value::bounded(text, 1024, 0, max).map(|value| value as u32);
        let lun = number(lun, u64::from(u32::MAX))?;
        let value = number(value, u64::from(u16::MAX))?;
        let control = match what {
            "depth" => Control::Depth { lun, depth: value },
            "weight" => Control::Weight { lun, weight: value },
            _ => return Err(wrong()),
        };
        Ok(Event { at_ns, control })
    }
}

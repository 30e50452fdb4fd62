//! The even share: `max(ceil(tag depth / active LUNs), 4)`, Linux's rule, by a serial divider.
//!
//! ```text
//!  tag_depth --> +---------------+ --> valid   pulse
//!  active    --> | share_divider | --> share
//!                +---------------+ --> busy
//! ```
//! A new division starts when an input differs from what was divided last; it takes a cycle a bit. Meanwhile the old share
//! binds. The weighted rule (deficit round robin) is in `admit`, where the commands go.

use crate::config::CardConfig;
use weir_kit::*;

/// Least share of a LUN in tags, as in Linux.
const LEAST_SHARE: u32 = 4;

/// Ports of [`share_divider`].
#[derive(Bundle, Clone, Copy)]
#[bundle(params = CardConfig)]
pub struct ShareDividerPorts {
    /// Tags that may be in use.
    #[input]
    #[bits(p.depth_bits())]
    pub tag_depth: Sig,
    /// LUNs with a parked or an executing command.
    #[input]
    #[bits(p.lun_bits() + 1)]
    pub active: Sig,
    /// Pulse: `share` is the result for the inputs as they were when it began.
    #[output]
    #[bits(1)]
    pub valid: Sig,
    /// Tags that one LUN may hold.
    #[output]
    #[bits(p.depth_bits())]
    pub share: Sig,
    /// A division is under way, or about to begin.
    #[output]
    #[bits(1)]
    pub busy: Sig,
}

/// The divider; see the module's documentation.
#[hw]
pub fn share_divider(c: &CardConfig) -> Module {
    module(
        "share_divider",
        "max(ceil(tag_depth / active), 4), one bit a cycle; restarts when an input has changed.",
        c,
        |p: ShareDividerPorts| {
            let width = c.depth_bits().max(c.lun_bits() + 1) + 1;
            let divided_tag_depth = reg(c.depth_bits(), 0);
            let divisor = reg(c.lun_bits() + 1, 0);
            let steps = reg(bits_for(width.into()), 0);
            comment("the dividend shifts out at the top, the quotient in at the bottom");
            let quotient = reg_nr(width);
            let rest = reg_nr(width - 1);

            let at_least_one = p.active.any().mux(p.active, 1);
            let changed = p.tag_depth.ne(divided_tag_depth) | at_least_one.ne(divisor);
            let next_rest = cat(&[rest, quotient.hi(1)]);
            let fits = next_rest.ge(divisor.zext(width));
            when(steps.any(), || {
                steps.set(steps - 1);
                rest.set(
                    fits.mux(next_rest - divisor.zext(width), next_rest)
                        .trunc(width - 1),
                );
                quotient.set(cat(&[quotient.trunc(width - 1), fits]));
            })
            .elsewhen(changed, || {
                divided_tag_depth.set(p.tag_depth);
                divisor.set(at_least_one);
                steps.set(width);
                rest.set(0);
                quotient.set(p.tag_depth.zext(width) + at_least_one.zext(width) - 1);
            });
            let finished = reg(1, 0);
            finished.set(steps.eq(1));
            let least = LEAST_SHARE.min(c.tags);
            p.valid.set(finished);
            p.share.set(quotient.lt(least).mux(
                lit(least.into(), c.depth_bits()),
                quotient.trunc(c.depth_bits()),
            ));
            p.busy.set(steps.any() | changed | finished);
        },
    )
}

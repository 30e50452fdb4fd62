//! Set Features and Get Features (NVMe 1.4, 5.21 and 5.9): the values kept here, and the requests for those that the LUN
//! engine keeps (C0h LUN budget, C1h tag set).
//!
//! Nothing is saveable. Select 1 (default) answers the value after reset, 2 (saved) the same, 3 (supported
//! capabilities) changeable, and for C0h namespace specific.

use super::{Command, Outcome, State};
use crate::admin::AdminPorts;
use crate::config::CardConfig;
use weir_kit::*;
use weir_nvme::StatusCode;
use weir_nvme::feature::FeatureId;

/// Registers of the features that admin keeps.
pub(super) struct Features {
    arbitration: Sig,
    temperature_over: Sig,
    temperature_under: Sig,
    recovery: Sig,
    coalescing: Sig,
    vector_config: Sig,
    atomicity: Sig,
    events: Sig,
    queues: u32,
    tags: u32,
}

/// Arbitration burst 2^3, the RAB that Identify Controller recommends.
const DEFAULT_ARBITRATION: u32 = 3;
/// No over temperature threshold is crossed: FFFFh.
const DEFAULT_OVER: u32 = 0xffff;

impl Features {
    #[hw]
    pub(super) fn new(c: &CardConfig, p: &AdminPorts) -> Features {
        let arbitration = reg(32, DEFAULT_ARBITRATION);
        let temperature_over = reg(16, DEFAULT_OVER);
        let temperature_under = reg(16, 0);
        let recovery = reg(17, 0);
        let coalescing = reg(16, 0);
        let vector_config = reg(c.queues + 1, 0);
        let atomicity = reg(1, 0);
        let events = reg(32, 0);
        p.coalescing_threshold.set(coalescing.bits(0, 8));
        p.coalescing_time.set(coalescing.bits(8, 8));
        p.coalescing_disable.set(vector_config);
        Features {
            arbitration,
            temperature_over,
            temperature_under,
            recovery,
            coalescing,
            vector_config,
            atomicity,
            events,
            queues: c.queues,
            tags: c.tags,
        }
    }

    /// Some I/O queue exists.
    pub(super) fn exists_any(sqs: Sig, cqs: Sig) -> Sig {
        sqs.any() | cqs.any()
    }

    /// Back to the values after reset.
    pub(super) fn clear(&self, clear: Sig) {
        when(clear, || {
            self.arbitration.set(lit(DEFAULT_ARBITRATION.into(), 32));
            self.temperature_over.set(lit(DEFAULT_OVER.into(), 16));
            self.temperature_under.set(lit(0, 16));
            self.recovery.set(lit(0, 17));
            self.coalescing.set(lit(0, 16));
            self.vector_config.set(lit(0, self.queues + 1));
            self.atomicity.set(lit(0, 1));
            self.events.set(lit(0, 32));
        });
    }

    /// Set Features, in state Start.
    #[hw]
    pub(super) fn set(
        &self,
        c: &CardConfig,
        p: &AdminPorts,
        e: &Command,
        out: Outcome,
        queues_exist: Sig,
        result: Sig,
    ) {
        let fid = e.cdw10.bits(0, 8);
        let value = e.cdw11;
        let save = e.cdw10.bit(31);
        let of_lun = fid.eq(FeatureId::LUN_BUDGET.0);
        let nsid_given = e.nsid.any() & !e.nsid.all();
        let known = self.known(fid);
        let common = [
            (!known, StatusCode::INVALID_FIELD),
            (save, StatusCode::FEATURE_NOT_SAVEABLE),
            (
                !of_lun & nsid_given,
                StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC,
            ),
        ];
        out.check(&common, || {
            switch(fid, |s| {
                s.is(FeatureId::ARBITRATION.0, || {
                    self.arbitration.set(value);
                    out.succeed();
                });
                s.is(FeatureId::POWER_MANAGEMENT.0, || {
                    out.check(
                        &[(value.bits(0, 5).any(), StatusCode::INVALID_FIELD)],
                        || out.succeed(),
                    );
                });
                s.is(FeatureId::TEMPERATURE_THRESHOLD.0, || {
                    // Only the composite temperature (TMPSEL 0, or Fh for all); THSEL 0 over, 1 under.
                    let sensor = value.bits(16, 4);
                    let kind = value.bits(20, 2);
                    let bad = (sensor.any() & !sensor.all()) | kind.bit(1);
                    out.check(&[(bad, StatusCode::INVALID_FIELD)], || {
                        when(kind.bit(0), || {
                            self.temperature_under.set(value.bits(0, 16))
                        })
                        .otherwise(|| self.temperature_over.set(value.bits(0, 16)));
                        out.succeed();
                    });
                });
                s.is(FeatureId::ERROR_RECOVERY.0, || {
                    self.recovery.set(value.bits(0, 17));
                    out.succeed();
                });
                s.is(FeatureId::NUMBER_OF_QUEUES.0, || {
                    let reserved = value.bits(0, 16).all() | value.bits(16, 16).all();
                    out.check(
                        &[
                            (queues_exist, StatusCode::COMMAND_SEQUENCE_ERROR),
                            (reserved, StatusCode::INVALID_FIELD),
                        ],
                        || {
                            result.set(queue_numbers(p));
                            out.succeed();
                        },
                    );
                });
                s.is(FeatureId::INTERRUPT_COALESCING.0, || {
                    self.coalescing.set(value.bits(0, 16));
                    out.succeed();
                });
                s.is(FeatureId::INTERRUPT_VECTOR_CONFIG.0, || {
                    let vector = value.bits(0, 16);
                    out.check(&[(vector.gt(c.queues), StatusCode::INVALID_FIELD)], || {
                        let bit = onehot(vector.trunc(c.queue_bits()), c.queues + 1);
                        self.vector_config.set(
                            value
                                .bit(16)
                                .mux(self.vector_config | bit, self.vector_config & !bit),
                        );
                        out.succeed();
                    });
                });
                s.is(FeatureId::WRITE_ATOMICITY.0, || {
                    self.atomicity.set(value.bit(0));
                    out.succeed();
                });
                s.is(FeatureId::ASYNC_EVENT_CONFIG.0, || {
                    self.events.set(value);
                    out.succeed();
                });
                s.is(FeatureId::LUN_BUDGET.0, || {
                    let depth = value.bits(0, 16);
                    let depth_bad = depth.eq(0) | depth.gt(p.tags.zext(16));
                    let weight_bad = value.bits(16, 16).eq(0);
                    let nsid_bad = !e.nsid.all() & (e.nsid.eq(0) | e.nsid.gt(p.luns.zext(32)));
                    out.check(
                        &[
                            (nsid_bad, StatusCode::INVALID_NAMESPACE),
                            (depth_bad | weight_bad, StatusCode::INVALID_FIELD),
                        ],
                        || out.state.set(State::Budget.lit()),
                    );
                });
                s.is(FeatureId::TAG_SET.0, || {
                    let depth = value.bits(0, 16);
                    let depth_bad = depth.eq(0) | depth.gt(p.tags.zext(16));
                    let rule_bad = value.bits(16, 2).all() | value.bits(18, 14).any();
                    out.check(&[(depth_bad | rule_bad, StatusCode::INVALID_FIELD)], || {
                        out.state.set(State::Budget.lit());
                    });
                });
                // `known` lets nothing else through.
                s.default(|| out.succeed());
            });
        });
    }

    /// Get Features, in state Start.
    #[hw]
    pub(super) fn get(
        &self,
        c: &CardConfig,
        p: &AdminPorts,
        e: &Command,
        out: Outcome,
        result: Sig,
    ) {
        let fid = e.cdw10.bits(0, 8);
        let select = e.cdw10.bits(8, 3);
        let of_lun = fid.eq(FeatureId::LUN_BUDGET.0);
        let nsid_bad = of_lun & (e.nsid.eq(0) | e.nsid.gt(p.luns.zext(32)));
        let under = e.cdw11.bit(20);
        let sensor_bad = fid.eq(FeatureId::TEMPERATURE_THRESHOLD.0)
            & ((e.cdw11.bits(16, 4).any() & !e.cdw11.bits(16, 4).all()) | e.cdw11.bit(21));
        let vector = e.cdw11.bits(0, 16);
        let vector_bad = fid.eq(FeatureId::INTERRUPT_VECTOR_CONFIG.0) & vector.gt(c.queues);
        let vector_index = vector.trunc(c.queue_bits());
        let by_default = select.eq(1) | select.eq(2);
        let checks = [
            (
                !self.known(fid) | select.gt(3) | sensor_bad | vector_bad,
                StatusCode::INVALID_FIELD,
            ),
            (nsid_bad, StatusCode::INVALID_NAMESPACE),
        ];
        out.check(&checks, || {
            out.succeed();
            when(select.eq(3), || {
                // Bit 2 changeable, bit 1 namespace specific, bit 0 saveable.
                result.set(cat(&[lit(0, 29), lit(1, 1), of_lun, lit(0, 1)]));
            })
            .elsewhen(by_default, || {
                result.set(self.default_value(fid, vector, under, p))
            })
            .otherwise(|| {
                switch(fid, |s| {
                    s.is(FeatureId::ARBITRATION.0, || result.set(self.arbitration));
                    s.is(FeatureId::TEMPERATURE_THRESHOLD.0, || {
                        let t = under.mux(self.temperature_under, self.temperature_over);
                        result.set(t.zext(32));
                    });
                    s.is(FeatureId::ERROR_RECOVERY.0, || {
                        result.set(self.recovery.zext(32))
                    });
                    s.is(FeatureId::NUMBER_OF_QUEUES.0, || {
                        result.set(queue_numbers(p))
                    });
                    s.is(FeatureId::INTERRUPT_COALESCING.0, || {
                        result.set(self.coalescing.zext(32))
                    });
                    s.is(FeatureId::INTERRUPT_VECTOR_CONFIG.0, || {
                        result.set(cat(&[
                            lit(0, 15),
                            self.vector_config.index(vector_index),
                            vector,
                        ]));
                    });
                    s.is(FeatureId::WRITE_ATOMICITY.0, || {
                        result.set(self.atomicity.zext(32))
                    });
                    s.is(FeatureId::ASYNC_EVENT_CONFIG.0, || result.set(self.events));
                    s.is(FeatureId::LUN_BUDGET.0, || {
                        out.state.set(State::Budget.lit())
                    });
                    s.is(FeatureId::TAG_SET.0, || out.state.set(State::Budget.lit()));
                });
            });
        });
    }

    /// Features that exist. VWC does not: there is no volatile write cache.
    fn known(&self, fid: Sig) -> Sig {
        [
            FeatureId::ARBITRATION,
            FeatureId::POWER_MANAGEMENT,
            FeatureId::TEMPERATURE_THRESHOLD,
            FeatureId::ERROR_RECOVERY,
            FeatureId::NUMBER_OF_QUEUES,
            FeatureId::INTERRUPT_COALESCING,
            FeatureId::INTERRUPT_VECTOR_CONFIG,
            FeatureId::WRITE_ATOMICITY,
            FeatureId::ASYNC_EVENT_CONFIG,
            FeatureId::LUN_BUDGET,
            FeatureId::TAG_SET,
        ]
        .iter()
        .fold(lit(0, 1), |any, f| any | fid.eq(f.0))
    }

    /// The value after reset.
    #[hw]
    fn default_value(&self, fid: Sig, vector: Sig, under: Sig, p: &AdminPorts) -> Sig {
        let value = var(lit(0, 32));
        switch(fid, |s| {
            s.is(FeatureId::ARBITRATION.0, || {
                value.set(lit(DEFAULT_ARBITRATION.into(), 32))
            });
            s.is(FeatureId::TEMPERATURE_THRESHOLD.0, || {
                value.set(under.mux(lit(0, 32), lit(DEFAULT_OVER.into(), 32)));
            });
            s.is(FeatureId::NUMBER_OF_QUEUES.0, || {
                value.set(queue_numbers(p))
            });
            s.is(FeatureId::INTERRUPT_VECTOR_CONFIG.0, || {
                value.set(vector.zext(32))
            });
            s.is(FeatureId::LUN_BUDGET.0, || {
                value.set(lit((1 << 16 | self.tags.min(32)).into(), 32))
            });
            s.is(FeatureId::TAG_SET.0, || {
                value.set(lit(self.tags.into(), 32))
            });
        });
        value
    }

    /// The request to the LUN engine, for Set and Get of C0h and C1h.
    #[hw]
    pub(super) fn request(&self, p: &AdminPorts, e: &Command, valid: Sig, lun: Sig, all_luns: Sig) {
        let depth_bits = p.budget.payload.depth.width();
        p.budget.valid.set(valid);
        p.budget.payload.set.set(e.opcode.eq(0x09));
        p.budget
            .payload
            .tag_set
            .set(e.cdw10.bits(0, 8).eq(FeatureId::TAG_SET.0));
        p.budget.payload.all.set(all_luns);
        p.budget.payload.lun.set(lun);
        p.budget.payload.depth.set(e.cdw11.trunc(depth_bits));
        p.budget.payload.weight.set(e.cdw11.bits(16, 16));
        p.budget.payload.rule.set(e.cdw11.bits(16, 2));
    }

    /// CQE DW0 of a reply of the LUN engine: what Get Features reports, 0 for Set Features.
    #[hw]
    pub(super) fn budget_result(&self, p: &AdminPorts, e: &Command) -> Sig {
        let r = &p.budget_reply;
        let lun_budget = cat(&[r.weight, r.depth.zext(16)]);
        let tag_set = cat(&[lit(0, 14), r.rule, r.depth.zext(16)]);
        let of_tags = e.cdw10.bits(0, 8).eq(FeatureId::TAG_SET.0);
        e.opcode
            .eq(0x09)
            .mux(lit(0, 32), of_tags.mux(tag_set, lun_budget))
    }
}

/// Number of Queues: as many as are in use, 0's based, for both kinds.
fn queue_numbers(p: &AdminPorts) -> Sig {
    let n = (p.queues.zext(16)) - 1;
    cat(&[n, n])
}

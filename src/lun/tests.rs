//! `weir lun` over a controller that is only its features and logs.

use super::watch::Rates;
use super::*;
use crate::options::per_lun_number;
use weir_driver::nvme::feature::{FeatureId, LunBudget, TagSet};
use weir_driver::nvme::log::LunStatistics;
use weir_driver::nvme::weir::WeirIdentity;
use weir_driver::nvme::{AdminOpcode, Command};
use weir_driver::{Info, Lun};

struct Fake {
    info: Info,
    luns: Vec<Lun>,
    budgets: Vec<LunBudget>,
    tags: TagSet,
    /// Of every LUN, as bytes.
    statistics: [u64; 10],
    /// Features set.
    sets: usize,
}

fn kernel() -> Holder {
    Holder {
        name: "Linux",
        block_devices: vec![(1, "nvme0n2".to_owned()), (5, "nvme0n1".to_owned())],
    }
}

/// Three LUNs (0, 1, 4) and 64 tags.
fn fake() -> Fake {
    let lun = |index| Lun {
        index,
        nsid: index + 1,
        blocks: 2048,
        block_shift: 9,
        id: Some([index as u8; 16]),
    };
    Fake {
        info: Info {
            model: "Weir".to_owned(),
            weir: Some(WeirIdentity {
                tags: 64,
                clock_khz: 250_000,
                fairness: 0b111,
                ..WeirIdentity::default()
            }),
            ..Info::default()
        },
        luns: vec![lun(0), lun(1), lun(4)],
        budgets: vec![LunBudget::new().with_depth(32).with_weight(1); 5],
        tags: TagSet::new().with_depth(64),
        statistics: [0; 10],
        sets: 0,
    }
}

impl Admin for Fake {
    fn execute(
        &mut self,
        _: &'static str,
        command: Command,
        data: &mut [u8],
    ) -> Result<u32, Error> {
        let feature = FeatureId(command.cdw10 as u8);
        let lun = command.nsid.wrapping_sub(1) as usize;
        match AdminOpcode(command.cdw0.opcode()) {
            AdminOpcode::SET_FEATURES => {
                self.sets += 1;
                match feature {
                    FeatureId::LUN_BUDGET => self.budgets[lun] = command.cdw11.into(),
                    FeatureId::TAG_SET => self.tags = command.cdw11.into(),
                    other => panic!("{other:?}"),
                }
                Ok(0)
            }
            AdminOpcode::GET_FEATURES => Ok(match feature {
                FeatureId::LUN_BUDGET => self.budgets[lun].into(),
                FeatureId::TAG_SET => self.tags.into(),
                other => panic!("{other:?}"),
            }),
            AdminOpcode::GET_LOG_PAGE => {
                for (word, value) in data.chunks_exact_mut(8).zip(self.statistics) {
                    word.copy_from_slice(&value.to_le_bytes());
                }
                Ok(0)
            }
            other => panic!("{other:?}"),
        }
    }

    fn info(&self) -> &Info {
        &self.info
    }

    fn luns(&self) -> &[Lun] {
        &self.luns
    }
}

fn change(
    depth: &[&str],
    weight: &[&str],
    tags: Option<u16>,
    fairness: Option<Fairness>,
) -> Change {
    let read = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| per_lun_number(text).unwrap())
            .collect()
    };
    Change {
        depth: read(depth),
        weight: read(weight),
        tags,
        fairness,
    }
}

fn taken(fake: &mut Fake, statistics: bool) -> Snapshot {
    match Snapshot::take(fake, &kernel(), statistics) {
        Ok(snapshot) => snapshot,
        Err(Failure::Usage(text) | Failure::Wrong(text)) => panic!("{text}"),
    }
}

#[test]
fn what_is_set_is_listed() {
    let mut fake = fake();
    let change = change(
        &["8", "4=2"],
        &["lun1=7"],
        Some(48),
        Some(Fairness::WEIGHTED),
    );
    assert!(set(&mut fake, &change).is_ok());
    let json = taken(&mut fake, false).json();
    let column = |key: &str| -> Vec<u64> {
        let luns = json["luns"].as_array().unwrap();
        luns.iter().map(|lun| lun[key].as_u64().unwrap()).collect()
    };
    assert_eq!(column("lun"), [0, 1, 4]);
    assert_eq!(column("depth"), [8, 8, 2]);
    assert_eq!(column("weight"), [1, 7, 1]);
    assert_eq!(json["luns"][0]["device"], "/dev/nvme0n2");
    assert!(json["luns"][1]["device"].is_null());
    assert_eq!(json["controller"]["tag_depth"], 48);
    assert_eq!(json["controller"]["fairness"], "weighted");
    let text = taken(&mut fake, false).list();
    assert!(
        text.contains("64 tags, of which 48 may be used; fairness weighted"),
        "{text}"
    );
    assert!(
        text.contains("  4     5  1.0 MiB  512 B      2       1  /dev/nvme0n1  0404040404"),
        "{text}"
    );
    // Only what changes is sent, and the rule alone leaves the tag depth.
    let sets = fake.sets;
    let rule = super::tests::change(&["0=8"], &[], None, Some(Fairness::EVEN));
    assert!(set(&mut fake, &rule).is_ok());
    assert_eq!(
        (fake.sets, fake.tags.depth(), fake.tags.fairness()),
        (sets + 1, 48, 1)
    );
}

#[test]
fn a_mistake_changes_nothing_and_names_the_option() {
    for (change, part) in [
        (
            change(&["8", "1=65"], &[], None, None),
            "--depth 65: must be 1 to 64",
        ),
        (
            change(&["8"], &["0"], None, None),
            "--weight 0: must be 1 to 65535",
        ),
        (
            change(&["8", "2=8"], &[], None, None),
            "--depth: there is no LUN 2",
        ),
        (
            change(&["8"], &[], Some(0), None),
            "--tags 0: must be 1 to 64",
        ),
    ] {
        let mut fake = fake();
        let result = set(&mut fake, &change);
        assert!(
            matches!(&result, Err(Failure::Usage(text)) if text.contains(part)),
            "{part}"
        );
        assert_eq!(fake.sets, 0);
    }
}

#[test]
fn another_controller_is_listed_but_has_no_statistics_and_cannot_be_set() {
    let mut fake = fake();
    fake.info.weir = None;
    let text = taken(&mut fake, false).list();
    assert!(
        text.contains("no Weir card") && text.contains("  -"),
        "{text}"
    );
    assert!(matches!(
        Snapshot::take(&mut fake, &kernel(), true),
        Err(Failure::Usage(_))
    ));
    let result = set(&mut fake, &change(&["8"], &[], None, None));
    assert!(matches!(result, Err(Failure::Usage(_))));
}

#[test]
fn rates_are_differences_and_a_reset_starts_anew() {
    let mut fake = fake();
    fake.statistics = [3, 9, 2, 1000, 990, 50, 0, 0, 0, 1 << 20];
    let before = taken(&mut fake, true);
    let text = before.statistics();
    assert!(
        text.contains("  0          3     9       2      1000        990"),
        "{text}"
    );
    fake.statistics = [1, 9, 0, 3000, 2990, 150, 7, 0, 2000 * 250, 9 << 20];
    let mut now = taken(&mut fake, true);
    now.at = before.at + Duration::from_secs(2);
    let rates = Rates::between(&before, &now).json(&now);
    let lun = &rates["luns"][2];
    assert_eq!(rates["seconds"], 2.0);
    assert_eq!(
        (&lun["iops"], &lun["bytes_per_s"]),
        (&1000.0.into(), &f64::from(4 << 20).into())
    );
    assert_eq!(lun["deferred_depth_per_s"], 50.0);
    let table = Rates::between(&before, &now).table(&now);
    // 250 cycles of 4 ns a command.
    assert!(table.contains("1000  4.0 MiB/s"), "{table}");
    assert!(
        table.contains("1.00 us") && table.contains("all: 3000 IOPS, 12.0 MiB/s"),
        "{table}"
    );
    fake.statistics = [0, 1, 0, 10, 10, 0, 0, 0, 0, 0];
    let mut again = taken(&mut fake, true);
    again.at = now.at + Duration::from_secs(1);
    let rates = Rates::between(&now, &again).json(&again);
    assert_eq!(rates["luns"][0]["iops"], 10.0);
    let words = LunStatistics::FIELDS.len();
    assert_eq!(words, fake.statistics.len());
}

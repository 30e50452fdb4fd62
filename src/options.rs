//! What several subcommands take: the card's configuration, and values given for one LUN or for all.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use weir_card::config::CardConfig;
use weir_nvme::feature::Fairness;
use weir_sim::fio;
use weir_sim::time::Latency;

/// Which card is built.
#[derive(Args, Clone, Debug)]
pub struct CardArgs {
    /// Configuration to start from: small, default or large.
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub config: String,
    /// I/O queues in use; more than the configuration has builds a card with more.
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,
    /// LUNs in use; more than the configuration has builds a card with more.
    #[arg(long, value_name = "N")]
    pub luns: Option<u32>,
    /// Tags in use; more than the configuration has builds a card with more.
    #[arg(long, value_name = "N")]
    pub tags: Option<u32>,
    /// Entries of an I/O queue: builds a card with as many.
    #[arg(long, value_name = "N")]
    pub entries: Option<u32>,
    /// Width of the data buses, bits: builds such a card.
    #[arg(long, value_name = "BITS")]
    pub data_bits: Option<u32>,
    /// ID bits of both AXI ports: builds such a card.
    #[arg(long, value_name = "BITS")]
    pub id_bits: Option<u32>,
}

impl CardArgs {
    /// The card to build; a smaller number of queues, LUNs or tags than it has is a limit at run time. `need_luns` LUNs
    /// must fit.
    pub fn card(&self, need_luns: u32) -> Result<CardConfig, String> {
        let mut card = CardConfig::named(&self.config)
            .ok_or_else(|| format!("--config {}: must be small, default or large", self.config))?;
        let named = card.clone();
        card.queues = card.queues.max(self.queues.unwrap_or(1));
        card.luns = card.luns.max(self.luns.unwrap_or(1)).max(need_luns);
        if let Some(tags) = self.tags.filter(|tags| *tags > card.tags) {
            // The next power of two, when that can be built.
            let built = tags.checked_next_power_of_two();
            card.tags = built.filter(|tags| *tags <= 4096).unwrap_or(tags);
        }
        card.entries = self.entries.unwrap_or(card.entries);
        card.data_bits = self.data_bits.unwrap_or(card.data_bits);
        if let Some(bits) = self.id_bits {
            (card.host_id_bits, card.media_id_bits) = (bits, bits);
        }
        if card != named {
            card.name = "custom".into();
        }
        card.check().map_err(|error| error.to_string())?;
        let least = |option, value: Option<u32>| match value {
            Some(0) => Err(format!("--{option} 0: at least 1")),
            _ => Ok(()),
        };
        least("queues", self.queues)?;
        least("luns", self.luns)?;
        least("tags", self.tags)?;
        Ok(card)
    }

    /// The card as it is built, for what has no run time at which fewer queues, LUNs or tags could be in use.
    pub fn built(&self) -> Result<CardConfig, String> {
        let card = self.card(1)?;
        for (option, asked, has) in [
            ("queues", self.queues, card.queues),
            ("luns", self.luns, card.luns),
            ("tags", self.tags, card.tags),
        ] {
            if let Some(asked) = asked.filter(|asked| *asked != has) {
                return Err(format!(
                    "--{option} {asked}: the card is built with {has}; a smaller number in use is set at run time, by weir sim and \
                     weir serve"
                ));
            }
        }
        Ok(card)
    }
}

/// A value for one LUN (`3=32`, `lun3=32`) or for all (`32`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerLun<T> {
    /// From 0; None is all.
    pub lun: Option<u32>,
    /// The value.
    pub value: T,
}

/// Reads a [`PerLun`], its value by `value`.
pub fn per_lun<T>(
    text: &str,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<PerLun<T>, String> {
    let (lun, rest) = match text.split_once('=') {
        None => (None, text),
        Some((lun, rest)) => {
            let number = lun.strip_prefix("lun").unwrap_or(lun).parse();
            (
                Some(
                    number
                        .map_err(|_| format!("'{lun}' is no LUN: a number, such as 3 or lun3"))?,
                ),
                rest,
            )
        }
    };
    Ok(PerLun {
        lun,
        value: value(rest)?,
    })
}

/// Reads a fairness rule by its name.
pub fn fairness() -> impl TypedValueParser<Value = Fairness> {
    PossibleValuesParser::new(Fairness::NAMES.map(|(name, _)| name)).map(|text| {
        let named = Fairness::NAMES.iter().find(|(name, _)| *name == text);
        named.map_or(Fairness::NONE, |(_, rule)| *rule)
    })
}

/// A number for one LUN or for all.
pub fn per_lun_number(text: &str) -> Result<PerLun<u16>, String> {
    per_lun(text, |value| {
        value
            .parse()
            .map_err(|_| format!("'{value}' is no number from 0 to 65535 (of one LUN: LUN=N)"))
    })
}

/// Reads a size in bytes: 4096, 4k, 1g.
pub fn size(text: &str) -> Result<u64, String> {
    fio::value::integer(text, 1024)
}

/// Reads a latency for one LUN or for all.
pub fn per_lun_latency(text: &str) -> Result<PerLun<Latency>, String> {
    per_lun(text, |value| {
        value
            .parse()
            .map_err(|error: weir_sim::time::TimeError| error.to_string())
    })
}

/// Reads a bandwidth in bytes a second: 8g.
pub fn bandwidth(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("nothing would ever be moved; without the option there is no bound".to_owned()),
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<u16, String> {
        text.parse().map_err(|_| format!("'{text}' is no number"))
    }

    #[test]
    fn values_for_a_lun_or_all() {
        let read = |text| per_lun(text, number).map(|p| (p.lun, p.value));
        assert_eq!(read("32"), Ok((None, 32)));
        assert_eq!(read("3=8"), Ok((Some(3), 8)));
        assert_eq!(read("lun3=8"), Ok((Some(3), 8)));
        assert!(read("x=8").unwrap_err().contains("'x' is no LUN"));
        assert!(read("3=").unwrap_err().contains("no number"));
    }

    #[test]
    fn a_limit_does_not_build_another_card_but_more_does() {
        let args = CardArgs {
            config: "default".into(),
            queues: Some(4),
            luns: Some(3),
            tags: Some(100),
            entries: None,
            data_bits: None,
            id_bits: None,
        };
        assert_eq!(args.card(1).unwrap(), CardConfig::default_card());
        let more = CardArgs {
            luns: Some(40),
            tags: Some(600),
            ..args.clone()
        }
        .card(1)
        .unwrap();
        assert_eq!(
            (more.luns, more.tags, more.name.as_str()),
            (40, 1024, "custom")
        );
        assert_eq!(args.card(64).unwrap().luns, 64);
        let bad = |args: CardArgs| args.card(1).unwrap_err();
        assert!(
            bad(CardArgs {
                config: "tiny".into(),
                ..args.clone()
            })
            .contains("small, default or large")
        );
        assert!(
            bad(CardArgs {
                queues: Some(65),
                ..args.clone()
            })
            .contains("1 to 64")
        );
        assert!(
            bad(CardArgs {
                tags: Some(0),
                ..args
            })
            .contains("at least 1")
        );
    }
}

//! `--fault`: what the card does wrong on purpose.

use std::str::FromStr;

use wireboot_card::{Lie, Lies};

use crate::outage::{Outage, Outages};

const OUTAGES: [(&str, Outage); 2] = [("flap", Outage::Flap), ("death", Outage::Death)];

/// What a card does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FaultArgument {
    lies: Vec<Lie>,
    outages: Vec<Outage>,
    seed: u64,
}

impl FaultArgument {
    /// What the card does wrong in its rings.
    pub(super) fn lies(&self) -> Lies {
        Lies::new(&self.lies, self.seed)
    }

    /// When the whole card fails.
    pub(super) fn outages(&self) -> Outages {
        Outages::new(self.outages.clone(), self.seed)
    }
}

impl FromStr for FaultArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut lies, mut outages, mut seed) = (Vec::new(), Vec::new(), 1);
        for part in text.split(',') {
            if let Some(number) = part.strip_prefix("seed=") {
                let number = number.parse();
                seed = number.map_err(|_| format!("{part}: a number is needed"))?;
            } else if let Some(lie) = named(&Lie::NAMED, part) {
                lies.push(lie);
            } else if let Some(outage) = named(&OUTAGES, part) {
                outages.push(outage);
            } else {
                let lies = Lie::NAMED.map(|(name, _)| name).join(", ");
                let outages = OUTAGES.map(|(name, _)| name).join(", ");
                return Err(format!(
                    "{part:?} is no fault: {lies}, {outages}, and seed=N"
                ));
            }
        }
        if lies.is_empty() && outages.is_empty() {
            return Err("at least one fault is needed beside the seed".to_owned());
        }
        Ok(Self {
            lies,
            outages,
            seed,
        })
    }
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named() {
        for (name, lie) in Lie::NAMED {
            let argument: FaultArgument = name.parse().unwrap();
            assert_eq!((argument.lies, argument.seed), (vec![lie], 1));
        }
        let argument: FaultArgument = "flap,silence,seed=7,death".parse().unwrap();
        let expected = FaultArgument {
            lies: vec![Lie::Silence],
            outages: vec![Outage::Flap, Outage::Death],
            seed: 7,
        };
        assert_eq!(argument, expected);
        for bad in ["", "seed=1", "seed=x,late", "late,", "lates"] {
            assert!(bad.parse::<FaultArgument>().is_err(), "{bad}");
        }
    }
}

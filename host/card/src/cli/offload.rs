//! `--offload`: which offloads guests are offered.

use std::str::FromStr;

use wireboot_card::feature;

/// Offloads, as feature bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffloadArgument(pub u64);

impl FromStr for OffloadArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bits = match text {
            "all" => !0,
            "none" => 0,
            list => list
                .split(',')
                .map(offload_named)
                .try_fold(0, |all, bit| Ok::<_, String>(all | bit?))?,
        };
        for (bits_of, needed) in [
            (
                feature::GUEST_ECN,
                feature::GUEST_TSO4 | feature::GUEST_TSO6,
            ),
            (feature::HOST_ECN, feature::HOST_TSO4 | feature::HOST_TSO6),
        ] {
            if bits & bits_of != 0 && bits & needed == 0 {
                bits |= needed;
            }
        }
        if bits & feature::GUEST_USO != 0 {
            bits |= feature::GUEST_USO;
        }
        for (large, needed) in [
            (feature::LARGE_TO_GUEST, feature::GUEST_CSUM),
            (feature::LARGE_FROM_GUEST, feature::CSUM),
        ] {
            if bits & large != 0 {
                bits |= needed;
            }
        }
        Ok(Self(bits))
    }
}

fn offload_named(name: &str) -> Result<u64, String> {
    let known = feature::OFFLOADS.iter().find(|(known, _)| *known == name);
    known.map(|(_, bit)| *bit).ok_or_else(|| {
        let names = feature::OFFLOADS.map(|(name, _)| name).join(", ");
        format!("{name:?} is no offload: all, none, or a list of {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_named_and_bring_what_they_need() {
        let bits = |text: &str| text.parse::<OffloadArgument>().map(|offloads| offloads.0);
        assert_eq!(bits("all"), Ok(!0));
        assert_eq!(bits("none"), Ok(0));
        for (name, bit) in feature::OFFLOADS {
            let bits = bits(name).unwrap();
            assert_eq!(bits & bit, bit, "{name}");
            assert_eq!(feature::consistent(bits), bits, "{name}");
        }
        let two = feature::CSUM | feature::HOST_TSO4 | feature::GUEST_CSUM;
        assert_eq!(bits("host_tso4,guest_csum"), Ok(two));
        for bad in ["", "tso", "csum,", "csum,all"] {
            let error = bits(bad).unwrap_err();
            assert!(error.contains("guest_uso6, host_tso4"), "{error}");
        }
    }
}

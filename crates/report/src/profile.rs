//! Where the BSP (bootstrap processor) was while the firmware fetched a file.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::trace::PacketWork;

/// Samples of the BSP's position, taken while the firmware fetched a file by TFTP, again and again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// Name of the file on the TFTP server.
    pub file: String,
    /// How often it was fetched with samples taken, and as often without, by turns.
    pub turns: u32,
    /// How long it took with samples taken, in seconds: the median.
    pub seconds: f64,
    /// The same without.
    pub plain_s: f64,
    /// What taking samples costs of a packet's work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<PacketWork>,
    /// Samples asked for, a second; taken, where the firmware's timer took them.
    pub hertz: u32,
    /// The firmware's timer took them, as it offers no AP (application processor): code that runs with interrupts off counts where they come on again, and
    /// `interrupts_off` says nothing.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub by_timer: bool,
    /// How many samples were taken, in all turns together.
    pub samples: u64,
    /// Samples of these that found interrupts off.
    pub interrupts_off: u64,
    /// Samples asked for that were not taken, as there was no room for them or the one before was not answered yet.
    pub missed: u64,
    /// The programs of the firmware that it was in, most samples first.
    pub images: Vec<ProfiledImage>,
}

/// A program of the firmware's, by samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfiledImage {
    /// Its name in the firmware's volume, `MnpDxe`, or its file's GUID; empty for code that is in no image.
    pub name: String,
    /// Where it lies in memory; 0 for code that is in no image.
    pub address: u64,
    /// Bytes of it in memory; 0 for code that is in no image.
    pub bytes: u64,
    /// How often the BSP was there.
    pub samples: u64,
    /// How often with interrupts off.
    pub interrupts_off: u64,
}

impl Profile {
    /// The part of the samples that found the BSP in an image, from 0 to 1.
    pub fn share(&self, image: &ProfiledImage) -> f64 {
        image.samples as f64 / (self.samples as f64).max(1.0)
    }

    /// How much longer it took with samples taken, as a part of the time without; `None` where that is not known.
    pub fn overhead(&self) -> Option<f64> {
        (self.plain_s > 0.0).then_some(self.seconds / self.plain_s - 1.0)
    }

    /// The image that has an address.
    pub fn at(&self, address: u64) -> Option<&ProfiledImage> {
        let mut images = self.images.iter();
        images.find(|image| {
            address
                .checked_sub(image.address)
                .is_some_and(|offset| offset < image.bytes)
        })
    }

    /// A line for each image and whether interrupts were off, as programs that draw flame graphs read them: `firmware;MnpDxe 123`.
    pub fn folded(&self) -> String {
        let mut out = String::new();
        for image in &self.images {
            // Both are punctuation there.
            let name = image.name.replace([';', ' ', '\n'], "_");
            let name = if name.is_empty() { "no_image" } else { &name };
            let on = image.samples.saturating_sub(image.interrupts_off);
            for (frames, count) in [("", on), (";interrupts_off", image.interrupts_off)] {
                if count > 0 {
                    out.push_str(&format!("firmware;{name}{frames} {count}\n"));
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn folded_lines_add_up_to_the_samples() {
        let profile = Profile {
            samples: 9,
            images: vec![
                ProfiledImage {
                    name: "Mnp; Dxe".into(),
                    samples: 6,
                    interrupts_off: 2,
                    ..ProfiledImage::default()
                },
                ProfiledImage {
                    samples: 3,
                    ..ProfiledImage::default()
                },
            ],
            ..Profile::default()
        };
        assert_eq!(
            profile.folded(),
            "firmware;Mnp__Dxe 4\nfirmware;Mnp__Dxe;interrupts_off 2\nfirmware;no_image 3\n"
        );
        assert!((profile.share(&profile.images[1]) - 1.0 / 3.0).abs() < 1e-9);
        let mut placed = profile.clone();
        placed.images[0].address = 0x1000;
        placed.images[0].bytes = 0x10;
        let name = |address| placed.at(address).map(|image| image.name.as_str());
        assert_eq!(
            (name(0x1000), name(0x100f)),
            (Some("Mnp; Dxe"), Some("Mnp; Dxe"))
        );
        assert_eq!((name(0xfff), name(0x1010), name(0)), (None, None, None));
        assert_eq!(Profile::default().overhead(), None);
        let slowed = Profile {
            seconds: 3.0,
            plain_s: 2.0,
            ..Profile::default()
        };
        assert_eq!(slowed.overhead(), Some(0.5));
        assert_eq!(Profile::default().share(&ProfiledImage::default()), 0.0);
    }
}

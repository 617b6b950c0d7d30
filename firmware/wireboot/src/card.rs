//! Network cards: which there are, which driver drives each, and taking one.

use crate::driver::Driver;
use crate::error::Error;
use crate::origin::Origin;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use wireboot_nic::e1000e::{self, E1000e};
use wireboot_nic::nic_enum;
use wireboot_nic::platform::PciFunction;
use wireboot_nic::virtio::{self, VirtioNet};
use wireboot_platform::claim::lent::Lent;
use wireboot_platform::claim::pci::{self, Claim};
use wireboot_platform::claim::{snp, undi};
use wireboot_platform::pci::Function;
use wireboot_platform::snp::Snp;
use wireboot_platform::undi::Undi;
use wireboot_platform::{Clock, Status};

nic_enum! {
    /// Driven by a driver of ours. It calls no firmware, so it runs on any processor.
    pub enum NativeNic {
        /// A virtio network card, transitional or modern (PCI IDs 1af4:1000 and 1af4:1041).
        Virtio(VirtioNet<Function>),
        /// An Intel card that the e1000e driver knows.
        E1000e(E1000e<Function>),
    }
}

nic_enum! {
    /// Driven by the firmware's driver, which only the BSP may call.
    pub enum FirmwareNic {
        /// By its UNDI (UEFI 2.10, appendix E).
        Undi(Undi),
        /// By its `EFI_SIMPLE_NETWORK_PROTOCOL` (UEFI 2.10, section 24.1).
        Snp(Snp),
    }
}

impl FirmwareNic {
    /// Gives way on the handle of the firmware's driver, for protocols of ours.
    pub fn lend(&mut self) -> Option<Lent> {
        match self {
            Self::Undi(nic) => nic.lend(),
            Self::Snp(nic) => nic.lend(),
        }
    }
}

nic_enum! {
    /// A card in use.
    pub enum AnyNic {
        /// Our own driver drives it.
        Native(NativeNic),
        /// The firmware's driver drives it, by UNDI or EFI_SIMPLE_NETWORK_PROTOCOL.
        Firmware(FirmwareNic),
    }
}

/// A card, with the driver that will drive it.
pub enum Card {
    /// A PCI function that one of our drivers knows.
    Native(pci::Candidate),
    /// The firmware's, by UNDI.
    Undi(undi::Candidate),
    /// The firmware's, by EFI_SIMPLE_NETWORK_PROTOCOL.
    Snp(snp::Candidate),
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native(card) => card.fmt(f),
            Self::Undi(card) => card.fmt(f),
            Self::Snp(card) => card.fmt(f),
        }
    }
}

/// The name of our driver for a function.
fn driver_for(function: &pci::Candidate) -> Option<&'static str> {
    let (vendor, device) = (function.vendor, function.device);
    if virtio::supports(vendor, device) {
        Some("virtio-net")
    } else if e1000e::supports(vendor, device) {
        Some("e1000e")
    } else {
        None
    }
}

/// The driver, on a function that it resets first, with up to `pairs` queue pairs where the card has several.
pub fn start(function: Function, pairs: usize) -> Result<NativeNic, Error> {
    let id = function.config32(0);
    Ok(if e1000e::supports(id as u16, (id >> 16) as u16) {
        NativeNic::E1000e(E1000e::new(function)?)
    } else {
        NativeNic::Virtio(VirtioNet::with_pairs(function, pairs)?)
    })
}

/// What the firmware's drivers offer: by UNDI where that is wanted, else by EFI_SIMPLE_NETWORK_PROTOCOL, which every firmware uses itself.
fn firmware_cards(wanted: Option<Driver>) -> Vec<Card> {
    match wanted {
        Some(Driver::Undi) => undi::interfaces().into_iter().map(Card::Undi).collect(),
        _ => snp::interfaces().into_iter().map(Card::Snp).collect(),
    }
}

/// The card that we were booted from; when we were not, all there are, in the order to try. Ours is the driver where we have
/// one, unless `wanted` says which to use.
pub fn all(origin: &Origin, wanted: Option<Driver>) -> Result<Vec<Card>, Error> {
    let mut cards = Vec::new();
    let functions = pci::functions();
    let may_be_ours = matches!(wanted, None | Some(Driver::Native));
    let ours = |function: &pci::Candidate| may_be_ours && driver_for(function).is_some();
    for function in functions.iter().filter(|function| ours(function)) {
        cards.push(Card::Native(function.clone()));
    }
    if wanted != Some(Driver::Native) {
        // What the firmware booted over it drives already.
        let unknown = |function: &&pci::Candidate| function.is_network() && !ours(function);
        if origin.network.mac.is_none() {
            functions
                .iter()
                .filter(unknown)
                .for_each(pci::Candidate::connect);
        }
        let above_ours = |card: &Card| {
            let mut functions = functions.iter().filter(|function| ours(function));
            functions.any(|function| card.path().starts_with(&function.path))
        };
        let interfaces = firmware_cards(wanted).into_iter();
        cards.extend(interfaces.filter(|card| !above_ours(card)));
    }
    if origin.network.mac.is_some() {
        cards.retain(|card| origin.path.starts_with(card.path()));
        let nearest = cards.into_iter().max_by_key(|card| card.path().len());
        let nearest = nearest.ok_or_else(|| Error::Unsupported(booted_over(origin)))?;
        return Ok([nearest].into());
    }
    if cards.is_empty() {
        return Err(Error::NoInterface);
    }
    Ok(cards)
}

/// The function that we were booted over, for the user.
fn booted_over(origin: &Origin) -> String {
    pci::function_of(&origin.path).map_or_else(
        || "an unknown device".to_string(),
        |function| function.to_string(),
    )
}

/// A card in use.
pub struct Taken {
    /// Started; the link may still be down.
    pub nic: AnyNic,
    /// The function that our own driver drives. To be dropped behind the NIC: its memory belongs to the device.
    pub claim: Option<Claim>,
    /// Who drives it, for the user.
    pub driver: &'static str,
}

impl Card {
    /// Its device path: of its PCI function, or of the firmware's interface.
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Native(card) => &card.path,
            Self::Undi(card) => &card.path,
            Self::Snp(card) => &card.path,
        }
    }

    /// The same card as the firmware's driver offers it, for when ours does not start.
    pub fn with_firmware_driver(&self) -> Option<Self> {
        let Self::Native(function) = self else {
            return None;
        };
        let mut interfaces = firmware_cards(None).into_iter();
        interfaces.find(|card| card.path().starts_with(&function.path))
    }

    /// Takes it from the firmware and starts it, with up to `pairs` queue pairs.
    pub fn take(&self, pairs: usize, clock: Clock) -> Result<Taken, Error> {
        let refused = |status: Status| Error::Refused {
            interface: self.to_string(),
            status,
        };
        match self {
            Self::Native(card) => {
                let claim = Claim::take(card).map_err(|error| refused(error.status()))?;
                let function = claim.function(clock);
                let function = function.map_err(|error| refused(error.status()))?;
                Ok(Taken {
                    nic: AnyNic::Native(start(function, pairs)?),
                    claim: Some(claim),
                    driver: driver_for(card).unwrap_or("our driver"),
                })
            }
            Self::Undi(card) => {
                let nic = Undi::open(card, clock).map_err(|reason| Error::Undi {
                    interface: self.to_string(),
                    reason,
                })?;
                Ok(Taken {
                    nic: AnyNic::Firmware(FirmwareNic::Undi(nic)),
                    claim: None,
                    driver: "the firmware's driver by UNDI",
                })
            }
            Self::Snp(card) => {
                let nic = Snp::open(card).map_err(|error| refused(error.status()))?;
                Ok(Taken {
                    nic: AnyNic::Firmware(FirmwareNic::Snp(nic)),
                    claim: None,
                    driver: "the firmware's driver",
                })
            }
        }
    }
}

//! Whose driver drives a network card.

/// Whose driver drives a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Ours: virtio-net or e1000e, by the PCI id.
    Native,
    /// The firmware's, by UNDI.
    Undi,
    /// The firmware's, by EFI_SIMPLE_NETWORK_PROTOCOL.
    Snp,
}

impl Driver {
    /// What [`Self::named`] knows, for the user.
    pub const NAMES: &'static str = "native, undi or snp";

    /// By its name among the settings.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::Native),
            "undi" => Some(Self::Undi),
            "snp" => Some(Self::Snp),
            _ => None,
        }
    }
}

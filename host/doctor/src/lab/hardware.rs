//! What the machine of the lab and its network are made of, where that is not the usual.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use wireboot_lab::qemu::{Firmware, Machine};

/// The machine's firmware and network card.
#[derive(Args, Clone, Debug, Default)]
pub struct Hardware {
    /// The network card, as QEMU names it: e1000, e1000e, rtl8139, vmxnet3 [default: virtio-net-pci]
    #[arg(long, value_name = "MODEL")]
    pub card: Option<String>,
    /// The card's option ROM, with a driver for UEFI; Debian's package ipxe-qemu has some in /usr/lib/ipxe/qemu, efi-*.rom
    #[arg(long, value_name = "FILE")]
    pub rom: Option<PathBuf>,
    /// OVMF, its code: a file with CODE in its name, beside one with VARS instead [default: Debian's]
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,
    /// The largest packet that the network takes, in bytes; virtio-net is told [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1280..))]
    pub mtu: Option<u16>,
}

/// The laboratory's own hardware, in which nothing is chosen.
pub(super) static PLAIN: Hardware = Hardware {
    card: None,
    rom: None,
    firmware: None,
    mtu: None,
};

impl Hardware {
    /// Changes what a machine is made of.
    ///
    /// # Errors
    /// When a file is not there.
    pub(super) fn build(&self, machine: &mut Machine) -> Result<()> {
        if let Some(card) = &mut machine.network {
            if let Some(model) = &self.card {
                card.model.clone_from(model);
            }
            if let Some(rom) = &self.rom {
                ensure!(rom.is_file(), "no option ROM {}", rom.display());
                card.rom = Some(rom.clone());
            }
            if let Some(mtu) = self.mtu.filter(|_| card.model.starts_with("virtio-net")) {
                card.properties.push(format!("host_mtu={mtu}"));
            }
        }
        if let Some(code) = &self.firmware {
            ensure!(code.is_file(), "no firmware {}", code.display());
            machine.firmware = Firmware::Ovmf {
                code: code.clone(),
                variables: variables(code)?,
            };
        }
        Ok(())
    }
}

/// The template of variables beside the code.
fn variables(code: &Path) -> Result<PathBuf> {
    let name = code.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let beside = code.with_file_name(name.replace("CODE", "VARS"));
    (beside != code && beside.is_file())
        .then_some(beside)
        .with_context(|| {
            format!(
                "no variables for {}: name a file such as OVMF_CODE_4M.fd, beside which OVMF_VARS_4M.fd lies",
                code.display()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_lie_beside_the_code() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in [
            "OVMF_CODE_4M.fd",
            "OVMF_VARS_4M.fd",
            "OVMF_CODE.fd",
            "OVMF.fd",
        ] {
            std::fs::write(path(name), "").unwrap();
        }
        let found = variables(&path("OVMF_CODE_4M.fd")).unwrap();
        assert_eq!(found, path("OVMF_VARS_4M.fd"));
        for without in ["OVMF_CODE.fd", "OVMF.fd"] {
            let error = variables(&path(without)).unwrap_err();
            assert!(error.to_string().contains(without), "{error}");
        }
    }
}

//! What a client boots: the same for both IP versions, apart from how its file is written.

/// What a client says about itself.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    pub user_classes: Vec<&'a [u8]>,
    pub vendor_class: &'a str,
    pub architectures: Vec<u16>,
}

/// The boot files, as clients are told of them.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// wireboot.conf.
    pub configuration: String,
    /// wireboot.efi by HTTP, if there is an HTTP server.
    pub http: Option<String>,
    /// wireboot.efi by TFTP, if there is a TFTP server.
    pub tftp: Option<String>,
}

/// What a client boots.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Boot {
    /// The client does not boot.
    Nothing,
    /// This file.
    File(String),
    /// It wants to boot, but what it can run is not here.
    Unserved(String),
}

impl Client<'_> {
    /// Chooses among the files.
    pub fn boots(&self, files: Files) -> Boot {
        if self.user_classes.contains(&b"wireboot".as_slice()) {
            return Boot::File(files.configuration);
        }
        let is = |wanted: &[u16]| {
            let mut architectures = self.architectures.iter();
            architectures.any(|architecture| wanted.contains(architecture))
        };
        if self.vendor_class.starts_with("HTTPClient") {
            return match files.http {
                Some(file) if is(&[X64_HTTP]) => Boot::File(file),
                Some(_) => unserved(&self.architectures),
                None => Boot::Unserved("it boots by HTTP, which --no-http turned off".to_owned()),
            };
        }
        if self.vendor_class.starts_with("PXEClient") {
            return match (is(&[X64, EBC]), files.tftp) {
                (true, Some(file)) => Boot::File(file),
                (true, None) => {
                    Boot::Unserved("it boots by TFTP, which --no-tftp turned off".to_owned())
                }
                (false, _) => unserved(&self.architectures),
            };
        }
        Boot::Nothing
    }
}

/// Client system architectures (IANA, "Processor Architecture Types"); firmware for x64 says 7 or, as early
/// documents had it, 9.
const X64: u16 = 7;
const EBC: u16 = 9;
const X64_HTTP: u16 = 16;

fn unserved(architectures: &[u16]) -> Boot {
    let what = match architectures.first() {
        Some(0) => "BIOS firmware".to_owned(),
        Some(6 | 15) => "32-bit UEFI firmware".to_owned(),
        Some(10 | 11 | 18 | 19) => "UEFI firmware for Arm".to_owned(),
        Some(other) => format!("architecture {other}"),
        None => "firmware that does not say its architecture (option 93, over IPv6 61)".to_owned(),
    };
    Boot::Unserved(format!(
        "{what}: wireboot boots 64-bit x86 UEFI machines only, so there is no boot file for it"
    ))
}

//! Definitions of the UEFI specification that the `uefi-raw` crate lacks, in its style: field for field
//! and name for name as in the specification, so that they can be offered upstream.

#[cfg(test)]
mod layout;
pub mod managed_network;
pub mod mtftp;
pub mod pci_io;
pub mod pxe_callback;
pub mod undi;

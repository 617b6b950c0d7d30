//! The disk or stick that doctor.efi came from: reports are kept there, and what is being done while a machine may hang.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wireboot_platform::Status;
use wireboot_platform::volume::Volume;

/// Names the check that runs. It is there only while one does.
const RUNNING: &str = "doctor-running.txt";
/// Bytes that are read of it.
const LONGEST: usize = 64;
/// Reports that a disk has at most.
const MOST: u32 = 9999;

/// The files of a disk.
pub(super) trait Files {
    fn has(&mut self, name: &str) -> bool;
    fn read(&mut self, name: &str, most: usize) -> Option<Vec<u8>>;
    fn create(&mut self, name: &str, bytes: &[u8]) -> Result<(), Status>;
    fn remove(&mut self, name: &str) -> Result<(), Status>;
}

impl Files for Volume {
    fn has(&mut self, name: &str) -> bool {
        Self::has(self, name)
    }

    fn read(&mut self, name: &str, most: usize) -> Option<Vec<u8>> {
        Self::read(self, name, most)
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> Result<(), Status> {
        Self::create(self, name, bytes).map_err(|error| error.status())
    }

    fn remove(&mut self, name: &str) -> Result<(), Status> {
        Self::remove(self, name).map_err(|error| error.status())
    }
}

pub(super) struct Disk<F>(pub F);

impl<F: Files> Disk<F> {
    /// The check in which an examination before this one ended: nobody removed the file that names it.
    pub(super) fn interrupted(&mut self) -> Option<String> {
        let bytes = self.0.read(RUNNING, LONGEST)?;
        // Whoever wrote it, it is shown to people.
        let name = bytes.iter().take_while(|byte| byte.is_ascii_graphic());
        Some(name.map(|byte| char::from(*byte)).collect())
    }

    /// From now on this check runs.
    ///
    /// # Errors
    /// What the disk answers.
    pub(super) fn begin(&mut self, check: &str) -> Result<(), Status> {
        self.end()?;
        self.0.create(RUNNING, format!("{check}\r\n").as_bytes())
    }

    /// None runs.
    ///
    /// # Errors
    /// What the disk answers.
    pub(super) fn end(&mut self) -> Result<(), Status> {
        match self.0.remove(RUNNING) {
            Err(Status::NOT_FOUND) => Ok(()),
            result => result,
        }
    }

    /// Keeps a report, and the files that belong to it, under names that are free. Returns the names.
    ///
    /// # Errors
    /// What the disk answers. The report is there before the files are.
    pub(super) fn keep(
        &mut self,
        report: &str,
        files: &[(String, Vec<u8>)],
    ) -> Result<Vec<String>, Status> {
        let mut numbers = 1..=MOST;
        let number = numbers.find(|number| {
            let of_files = files
                .iter()
                .map(|(name, _)| format!("doctor-{number}-{name}"));
            !core::iter::once(format!("doctor-{number}.json"))
                .chain(of_files)
                .any(|name| self.0.has(&name))
        });
        let number = number.ok_or(Status::VOLUME_FULL)?;
        let mut names = Vec::from([format!("doctor-{number}.json")]);
        self.create(&names, report.as_bytes())?;
        for (name, bytes) in files {
            names.push(format!("doctor-{number}-{name}"));
            self.create(&names, bytes)?;
        }
        Ok(names)
    }

    /// Makes the last of the files.
    fn create(&mut self, names: &[String], bytes: &[u8]) -> Result<(), Status> {
        names
            .last()
            .map_or(Ok(()), |name| self.0.create(name, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Memory {
        files: BTreeMap<String, Vec<u8>>,
        protected: bool,
    }

    impl Files for Memory {
        fn has(&mut self, name: &str) -> bool {
            self.files.contains_key(name)
        }

        fn read(&mut self, name: &str, most: usize) -> Option<Vec<u8>> {
            let bytes = self.files.get(name)?;
            Some(bytes[..bytes.len().min(most)].to_vec())
        }

        fn create(&mut self, name: &str, bytes: &[u8]) -> Result<(), Status> {
            if self.protected {
                return Err(Status::WRITE_PROTECTED);
            }
            assert!(
                self.files.insert(name.into(), bytes.into()).is_none(),
                "{name}"
            );
            Ok(())
        }

        fn remove(&mut self, name: &str) -> Result<(), Status> {
            self.files.remove(name).map(drop).ok_or(Status::NOT_FOUND)
        }
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let mut disk = Disk(Memory::default());
        assert_eq!(disk.keep("one", &[]).unwrap(), ["doctor-1.json"]);
        let files = [("boot.pcapng".into(), b"packets".to_vec())];
        let names = disk.keep("two", &files).unwrap();
        assert_eq!(names, ["doctor-2.json", "doctor-2-boot.pcapng"]);
        // One of whose files is there already.
        disk.0
            .files
            .insert("doctor-3-boot.pcapng".into(), b"kept".to_vec());
        assert_eq!(disk.keep("three", &files).unwrap().len(), 2);
        assert_eq!(disk.0.files["doctor-4.json"], b"three");
        assert_eq!(disk.0.files["doctor-3-boot.pcapng"], b"kept");
        assert_eq!(disk.0.files["doctor-1.json"], b"one");
        disk.0.protected = true;
        assert_eq!(disk.keep("four", &files), Err(Status::WRITE_PROTECTED));
        disk.0.protected = false;
        for number in 1..=MOST {
            disk.0
                .files
                .insert(format!("doctor-{number}.json"), Vec::new());
        }
        assert_eq!(disk.keep("five", &[]), Err(Status::VOLUME_FULL));
    }

    #[test]
    fn a_check_that_did_not_end_is_known_afterwards() {
        let mut disk = Disk(Memory::default());
        assert_eq!(disk.interrupted(), None);
        disk.begin("net").unwrap();
        disk.begin("boot").unwrap();
        assert_eq!(disk.interrupted().as_deref(), Some("boot"));
        disk.end().unwrap();
        disk.end().unwrap();
        assert_eq!(disk.interrupted(), None);
        assert!(disk.0.files.is_empty());
        let odd = [b"\x1b[2J".as_slice(), &[b'x'; 1000]].concat();
        disk.0.files.insert(RUNNING.into(), odd);
        assert_eq!(disk.interrupted().as_deref(), Some(""));
        disk.0.files.insert(RUNNING.into(), [b'x'; 1000].to_vec());
        assert_eq!(disk.interrupted().unwrap().len(), LONGEST);
    }
}

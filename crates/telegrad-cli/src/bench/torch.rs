//! The benchmark of torch.distributed.rpc, run by a Python that has torch.

mod error;
mod script;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

pub(super) use error::PeerError;

use super::record::{Record, Recorder};
use script::Script;

/// The benchmark itself is part of this program, so that an installed one has it too.
const FILES: [(&str, &str); 3] = [
    (
        "torch_rpc.py",
        include_str!("../../../../benches/peer/torch_rpc.py"),
    ),
    (
        "torch_rpc_worker.py",
        include_str!("../../../../benches/peer/torch_rpc_worker.py"),
    ),
    ("values.py", include_str!("../../../../benches/peer/values.py")),
];

/// Where to look when nobody says: what the user calls Python, then Debian's, which `python3-torch` is for.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// Importing torch from a slow disk takes seconds.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// A Python that has torch.
#[derive(Debug)]
pub(super) struct Torch {
    python: PathBuf,
    version: String,
    /// How long a section may take.
    limit: Duration,
    /// Has the files; removed with this.
    folder: TempDir,
}

impl Torch {
    /// The Python that was asked for, or the first of the usual ones that has torch.
    pub(super) fn find(python: Option<&Path>, limit: Duration) -> Result<Self, PeerError> {
        let folder = tempfile::Builder::new().prefix("telegrad-bench-").tempdir()?;
        for (name, text) in FILES {
            std::fs::write(folder.path().join(name), text)?;
        }
        let mut torch = Self {
            python: python.map_or_else(|| PYTHONS[0].into(), Path::to_path_buf),
            version: String::new(),
            limit,
            folder,
        };
        let first = torch.check();
        if first.is_err() && python.is_none() {
            torch.python = PYTHONS[1].into();
            // The second has the last word only if it can.
            torch.version = torch.check().or(first)?;
        } else {
            torch.version = first?;
        }
        Ok(torch)
    }

    /// Which torch it is.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    fn check(&self) -> Result<String, PeerError> {
        let mut version = None;
        let result = self.script(["--check"]).run(CHECK_LIMIT, |line| {
            version = line["version"].as_str().map(str::to_owned);
            version.is_some()
        });
        let python = || self.python.clone();
        match result {
            Ok(()) => version.ok_or_else(|| PeerError::Silent {
                what: "--check".into(),
            }),
            Err(PeerError::Failed { said, .. }) => Err(PeerError::NoTorch {
                python: python(),
                said,
            }),
            Err(PeerError::Io(source)) => Err(PeerError::NoPython {
                python: python(),
                source,
            }),
            Err(error) => Err(error),
        }
    }

    /// Runs a section. What it has measured when it fails is kept.
    pub(super) fn section(
        &self,
        section: &str,
        options: &[String],
        recorder: &mut Recorder,
    ) -> Result<(), PeerError> {
        let args = [section].into_iter().chain(options.iter().map(String::as_str));
        let mut values = 0;
        self.script(args).run(self.limit, |line| {
            let Some(record) = Record::of_line(&line) else {
                return false;
            };
            values += 1;
            recorder.of_peer(line, record);
            true
        })?;
        if values == 0 {
            return Err(PeerError::Silent { what: section.into() });
        }
        Ok(())
    }

    fn script<'a>(&'a self, args: impl IntoIterator<Item = &'a str>) -> Script<'a> {
        Script {
            python: &self.python,
            file: self.folder.path().join(FILES[0].0),
            args: args.into_iter().collect(),
        }
    }
}

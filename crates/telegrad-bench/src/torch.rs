//! The peer: the benchmark of torch.distributed.rpc, run by a Python with torch.

mod error;
mod script;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

pub(crate) use error::PeerError;

use crate::measurement::{Measurement, Measurements};
use script::Script;

/// The peer's files, which are part of this program.
const FILES: [(&str, &str); 3] = [
    ("torch_rpc.py", include_str!("../../../benches/peer/torch_rpc.py")),
    (
        "torch_rpc_worker.py",
        include_str!("../../../benches/peer/torch_rpc_worker.py"),
    ),
    ("values.py", include_str!("../../../benches/peer/values.py")),
];

/// Default interpreters: the user's, then Debian's, which the package `python3-torch` is for.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// Time limit of the check; importing torch from a slow disk takes seconds.
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// The peer's name of [`USER_FUNCTION`].
const PYTHON_UDF: &str = "python_udf";

/// A function of the program, as a value of the parameter `call`.
const USER_FUNCTION: &str = "user_function";

/// A Python with torch.
#[derive(Debug)]
pub(crate) struct Torch {
    python: PathBuf,
    version: String,
    /// Time limit for a section.
    limit: Duration,
    /// Holds the files; removed on drop.
    folder: TempDir,
}

impl Torch {
    /// Finds torch in the given Python, or in the first default interpreter that has it.
    pub(crate) fn find(python: Option<&Path>, limit: Duration) -> Result<Self, PeerError> {
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
            // If both fail, the error of the first one counts.
            torch.version = torch.check().or(first)?;
        } else {
            torch.version = first?;
        }
        Ok(torch)
    }

    /// The version of torch.
    pub(crate) fn version(&self) -> &str {
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
                section: "--check".into(),
            }),
            Err(PeerError::Failed { output, .. }) => Err(PeerError::NoTorch {
                python: python(),
                output,
            }),
            Err(PeerError::Io(source)) => Err(PeerError::NoPython {
                python: python(),
                source,
            }),
            Err(error) => Err(error),
        }
    }

    /// Runs a section. The values taken before a failure are kept.
    pub(crate) fn section(
        &self,
        section: &str,
        options: &[String],
        measurements: &mut Measurements,
    ) -> Result<(), PeerError> {
        let args = [section].into_iter().chain(options.iter().map(String::as_str));
        let mut values = 0;
        self.script(args).run(self.limit, |line| {
            let Some(mut measurement) = Measurement::from_line(&line) else {
                return false;
            };
            translate(&mut measurement);
            values += 1;
            measurements.add_peer(line, measurement);
            true
        })?;
        if values == 0 {
            return Err(PeerError::Silent {
                section: section.into(),
            });
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

/// Gives a value of the peer the parameters of our corresponding value.
fn translate(measurement: &mut Measurement) {
    if let Some(call) = measurement.params.get_mut("call")
        && call == PYTHON_UDF
    {
        *call = USER_FUNCTION.into();
    }
}

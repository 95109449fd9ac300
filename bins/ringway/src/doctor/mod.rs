//! `ringway doctor`: what this machine can do, what is missing, and what mends it.

mod bridges;
mod finding;
mod machine;
mod ports;
mod sandbox;
mod service;

use anyhow::ensure;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::config::{RunConfig, SpecError};
use crate::{layout, outcome, places, units};
use finding::{Finding, Verdict};

/// Looks, prints what was found, and ends well if `ringway run` with this file would; the outer
/// error is that the file is wrong.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn doctor(args: &DoctorArgs) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let mut findings = machine::findings();
    findings.extend(sandbox::findings());
    if let Some(file) = &args.config {
        let config = RunConfig::load(file, &[], places::control_socket(), None)?;
        findings.extend(ports::findings(&config));
        findings.extend(service::pin(file, &config.settings.pins));
        findings.extend(bridges::findings(&config.ports));
    }
    let text = match args.json {
        true => json!({ "findings": findings }).to_string() + "\n",
        false => table(&findings, layout::width()),
    };
    Ok(outcome::print(&text).and_then(|()| verdict(&findings)))
}

fn verdict(findings: &[Finding]) -> anyhow::Result<()> {
    let wrong = findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count() as u64;
    ensure!(wrong == 0, "ringway run would fail: {} above", units::counted(wrong, "cause"));
    Ok(())
}

fn table(findings: &[Finding], width: usize) -> String {
    let line = |finding: &Finding| {
        let Finding { what, found, mend, .. } = finding;
        let mark = match finding.verdict {
            Verdict::Fine => "ok",
            Verdict::Absent => "absent",
            Verdict::Wrong => "WRONG",
        };
        let lines = layout::wrapped(&format!("{mark} {what}: {found}"), width);
        let mend = mend.iter().flat_map(|mend| layout::wrapped(&format!("         {mend}"), width));
        lines.into_iter().chain(mend).map(|line| line + "\n").collect::<String>()
    };
    findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_fails_nothing_and_what_is_wrong_does() {
        let fine = Finding::fine("a", "there");
        let absent = Finding::absent("b", "not there", "get it");
        let wrong = Finding::wrong("c", "cannot be", "mend it");
        assert!(verdict(&[fine.clone(), absent.clone()]).is_ok());
        let error = verdict(&[fine.clone(), wrong.clone(), absent.clone()]).expect_err("wrong");
        assert_eq!(error.to_string(), "ringway run would fail: 1 cause above");
        let text = table(&[fine, absent, wrong], 80);
        assert_eq!(
            text,
            "ok a: there\nabsent b: not there\n         get it\n\
             WRONG c: cannot be\n         mend it\n"
        );
    }
}

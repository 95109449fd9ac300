//! The demonstration where User Mode Linux is missing: two guests that live in this process.

use anyhow::bail;

use super::Stage;
use super::measured::Measured;

/// Lets two embedded guests exchange traffic; `ask` is called while both are connected.
///
/// # Errors
/// Always, so far.
pub fn measure(
    _stage: &Stage<'_>,
    _ask: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    bail!("embedded guests are not built yet: install Linux guests: {}", super::uml::INSTALL)
}

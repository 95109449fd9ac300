//! Names of processes and users, for people who look for them.

/// Bytes of a program's name that are read; the kernel keeps 15.
const PROGRAM_LEN_MAX: usize = 64;

/// The name of a process's program, as it calls itself.
pub fn program(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = &name[..name.len().min(PROGRAM_LEN_MAX)];
    Some(one_line(String::from_utf8_lossy(name).trim_end_matches('\n')))
}

/// The name of a user. A directory of names may take long to answer.
pub fn user(uid: u32) -> Option<String> {
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    user.map(|user| one_line(&user.name))
}

/// On one line, whatever it contains.
fn one_line(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_one_line() {
        assert_eq!(one_line("a\nb\x1b[31m"), "a?b?[31m");
    }
}

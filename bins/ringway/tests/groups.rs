//! A group that is not in /etc/group, but where another source of names has it: systemd's records
//! of groups below /run, as LDAP would be (nsswitch.conf(5)).

mod shell;

use shell::{User, must};

#[test]
fn groups_are_those_of_the_whole_machine() {
    let script = r#"
mkdir /run/userdb
echo '{"groupName":"rwguests","gid":4321}' > /run/userdb/rwguests.group
printf '[ringway]\ncontrol_group = "rwguests"\n' > f.toml
getent group rwguests >/dev/null || exit 0
ringway check-config f.toml
"#;
    match must(User::Root, script) {
        Some(text) if text.starts_with("f.toml: fine") => {}
        _ => println!("skipped: no namespaces here, or no names of groups from systemd"),
    }
}

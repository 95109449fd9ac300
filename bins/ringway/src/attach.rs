//! `ringway attach`: what each program has to be given to use a port.
//!
//! The options are a pure function of the port, asked of the running ringway. They are exact: what
//! is printed can be pasted into a command line or a file.
//!
//! Limits: guests of QEMU before version 8 under software emulation need `vectors=0`, which is
//! given where KVM does not open for who asks; User Mode Linux only connects, so it cannot use a
//! `vm-connect:` port. Packed rings are not asked for where the program cannot tell where one
//! stood: after a restart of ringway the guest would have no network. Notes are only about what is
//! left to do.

use std::fmt::Write as _;
use std::fs;

use anyhow::bail;
use clap::ValueEnum;
use ringway_net::Features;
use serde::Serialize;

use crate::args::{AttachArgs, Switch};
use crate::config::error::no_port;
use crate::config::{PortKind, PortSpec};
use crate::control::ListedPort;
use crate::front_end::FrontEnd;
use crate::outcome;
use crate::port_command::{names, ports, spec_of};
use crate::qemu_version::QemuVersion;

/// Entries of each queue, the most that QEMU has: a guest may be late by so many packets, and long
/// ones are read sooner where few of them stay in the cache of the core that writes them (ADR 23).
pub const QUEUE_SIZE: u16 = 1024;

/// The arguments that one program needs, with notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// The name of the program.
    #[serde(rename = "for")]
    program: &'static str,
    /// Arguments of a command line, unquoted.
    arguments: Vec<String>,
    /// XML, for libvirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    xml: Option<String>,
    /// Further notes.
    notes: Vec<String>,
}

/// The properties of a port that matter here.
struct Attachment {
    name: String,
    socket: String,
    /// The program listens, and ringway connects.
    program_listens: bool,
    mac: String,
    mtu: Option<u16>,
    has_mtu_of_uplinks: bool,
    packed: bool,
    /// Queue pairs.
    queues: u16,
    /// `None`: nothing was said about it.
    memory_mib: Option<u32>,
    qemu: Option<QemuVersion>,
    /// The guest runs on KVM.
    has_kvm: bool,
}

/// Memory of a guest of which nothing is said, in MiB.
const MEMORY_MIB: u32 = 512;

/// The use of KVM.
const KVM: &str = "/dev/kvm";

/// Its guests' drivers hang when they first use the card.
const VECTORS_NOTE: &str = "QEMU before version 8 without KVM, below domain (which has \
    xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'): <qemu:commandline><qemu:arg \
    value='-global'/><qemu:arg value='virtio-net-pci.vectors=0'/></qemu:commandline>";

/// Why a guest may not hear of its MTU.
const MTU_NOTE: &str =
    "mtu=auto: its guest is told only an MTU that is written here, as with mtu=1450 at the port";

/// Prints what a port's guest needs.
///
/// # Errors
/// No ringway answers, there is no such port, or the program cannot use it.
pub fn attach(args: &AttachArgs) -> anyhow::Result<()> {
    let reply = ports(&args.ask.control_or_default())?;
    let is_it = |port: &&ListedPort| port.port.get("name").is_some_and(|it| *it == *args.port);
    let Some(port) = reply.ports.iter().find(is_it) else {
        bail!(no_port(&args.port, names(&reply)));
    };
    let qemu = args.qemu_version.or_else(QemuVersion::installed);
    let has_kvm = args.kvm.map_or_else(|| opens(KVM), |kvm| kvm == Switch::On);
    let attachment = Attachment::of(port, args.memory, qemu, has_kvm)?;
    let given: Vec<Given> = match args.program {
        Some(program) => vec![attachment.given(program)?],
        None => FrontEnd::value_variants()
            .iter()
            .filter_map(|&program| attachment.given(program).ok())
            .collect(),
    };
    let text = match (args.ask.json, args.program) {
        (true, Some(_)) => serde_json::to_string(&given.first())? + "\n",
        (true, None) => serde_json::to_string(&given)? + "\n",
        (false, program) => given.iter().map(|it| it.text(program.is_none())).collect(),
    };
    outcome::print(&text)?;
    // Output for one program can be pasted as it stands.
    if args.program.is_some() && !args.ask.json {
        given
            .iter()
            .flat_map(|it| &it.notes)
            .for_each(|note| outcome::say(&format!("note: {note}")));
    }
    Ok(())
}

impl Attachment {
    fn of(
        port: &ListedPort,
        memory_mib: Option<u32>,
        qemu: Option<QemuVersion>,
        has_kvm: bool,
    ) -> anyhow::Result<Self> {
        let Some(spec) = spec_of(port) else { bail!("a port that this version does not know") };
        let PortSpec { name, kind, .. } = &spec;
        let (Some(socket), Some(mac)) = (port.socket.clone(), port.mac.clone()) else {
            bail!("{name}: a {} has no virtual machine: name a vm: port", kind.name());
        };
        Ok(Self {
            name: name.clone(),
            socket,
            program_listens: matches!(kind, PortKind::VmConnect { .. }),
            mac,
            mtu: spec.mtu,
            has_mtu_of_uplinks: spec.has_mtu_of_uplinks,
            packed: !spec.features_off.contains(Features::RING_PACKED),
            queues: spec.queues,
            memory_mib,
            qemu,
            has_kvm,
        })
    }

    /// In MiB.
    fn memory(&self) -> u32 {
        self.memory_mib.unwrap_or(MEMORY_MIB)
    }

    fn given(&self, program: FrontEnd) -> anyhow::Result<Given> {
        match program {
            FrontEnd::Qemu => Ok(self.qemu()),
            FrontEnd::Libvirt => Ok(self.libvirt()),
            FrontEnd::CloudHypervisor => self.cloud_hypervisor(),
            FrontEnd::Crosvm => self.crosvm(),
            FrontEnd::Uml => self.uml(),
            FrontEnd::Dpdk => self.dpdk(),
        }
    }

    fn qemu(&self) -> Given {
        let Self { name, mac, queues, .. } = self;
        let memory_mib = self.memory();
        // Two commas are one to QEMU.
        let path = self.socket.replace(',', ",,");
        let reconnect = self.qemu.map_or("reconnect-ms=1000", QemuVersion::reconnect);
        let way = if self.program_listens { "server=on" } else { reconnect };
        let mut netdev = format!("vhost-user,id=net-{name},chardev=chr-{name}");
        let mut device = format!(
            "virtio-net-pci,netdev=net-{name},mac={mac},rx_queue_size={QUEUE_SIZE},\
             tx_queue_size={QUEUE_SIZE}"
        );
        if let Some(mtu) = self.mtu {
            let _ = write!(device, ",host_mtu={mtu}");
        }
        if *queues > 1 {
            let _ = write!(netdev, ",queues={queues}");
            device.push_str(",mq=on");
        }
        // It ends when a guest's driver starts.
        let is_without = self.qemu.is_some_and(|it| it.needs_kvm_for_vectors()) && !self.has_kvm;
        if is_without {
            device.push_str(",vectors=0");
        } else if *queues > 1 {
            // One for each queue, one for the controlq, and one for the configuration.
            let _ = write!(device, ",vectors={}", 2 * queues + 2);
        }
        let arguments = [
            ["-m".to_string(), format!("{memory_mib}M")],
            [
                "-object".to_string(),
                format!("memory-backend-memfd,id=mem-{name},size={memory_mib}M,share=on"),
            ],
            ["-machine".to_string(), format!("memory-backend=mem-{name}")],
            ["-chardev".to_string(), format!("socket,id=chr-{name},path={path},{way}")],
            ["-netdev".to_string(), netdev],
            ["-device".to_string(), device],
        ];
        Given {
            notes: self.qemu_notes(),
            ..Given::arguments("qemu", arguments.as_flattened(), &[])
        }
    }

    /// Notes about what is left to do.
    fn qemu_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match self.qemu {
            None => notes.push(
                "for QEMU from 9.2 on, as none was found here: --qemu-version names another one"
                    .to_string(),
            ),
            Some(version) if version.needs_kvm_for_vectors() && self.has_kvm => {
                notes
                    .push(format!("QEMU {version} needs -accel kvm for that, or attach --kvm off"));
            }
            Some(_) => {}
        }
        if self.memory_mib.is_none() {
            notes.push(format!(
                "the guest has {MEMORY_MIB} MiB: --memory 4096 in place of -m gives it more"
            ));
        }
        notes.extend(self.has_mtu_of_uplinks.then(|| MTU_NOTE.to_string()));
        notes
    }

    fn libvirt(&self) -> Given {
        let mode = if self.program_listens { "server" } else { "client" };
        let reconnect = match self.program_listens {
            true => "",
            false => "\n    <reconnect enabled='yes' timeout='1'/>\n  ",
        };
        let mtu = self.mtu.map(|mtu| format!("  <mtu size='{mtu}'/>\n"));
        let queues = match self.queues {
            1 => String::new(),
            several => format!(" queues='{several}'"),
        };
        let xml = format!(
            "<memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n\
             </memoryBacking>\n\
             <interface type='vhostuser'>\n  <mac address='{}'/>\n\
             \x20 <source type='unix' path='{}' mode='{mode}'>{reconnect}</source>\n\
             \x20 <model type='virtio'/>\n\
             \x20 <driver{queues} rx_queue_size='{QUEUE_SIZE}' tx_queue_size='{QUEUE_SIZE}'/>\n\
             {}</interface>\n",
            self.mac,
            escaped(&self.socket),
            mtu.unwrap_or_default(),
        );
        let mut notes = vec!["memoryBacking belongs below domain, interface below devices"];
        let is_new = self.qemu.is_some_and(|version| !version.needs_kvm_for_vectors());
        notes.extend((!is_new).then_some(VECTORS_NOTE));
        notes.extend(self.has_mtu_of_uplinks.then_some(MTU_NOTE));
        Given { xml: Some(xml), ..Given::arguments("libvirt", &[], &notes) }
    }

    fn cloud_hypervisor(&self) -> anyhow::Result<Given> {
        self.check_path("Cloud Hypervisor", ",\"[]")?;
        let Self { socket, mac, queues, .. } = self;
        let mut net = format!("vhost_user=true,socket={socket},queue_size={QUEUE_SIZE},mac={mac}");
        if *queues > 1 {
            // It counts the two of each pair.
            let _ = write!(net, ",num_queues={}", 2 * queues);
        }
        if let Some(mtu) = self.mtu {
            let _ = write!(net, ",mtu={mtu}");
        }
        if self.program_listens {
            net.push_str(",vhost_mode=server");
        }
        let memory = format!("size={}M,shared=on", self.memory());
        let arguments = ["--memory".to_string(), memory, "--net".to_string(), net];
        let notes: &[&str] = if self.has_mtu_of_uplinks { &[MTU_NOTE] } else { &[] };
        Ok(Given::arguments("cloud-hypervisor", &arguments, notes))
    }

    fn crosvm(&self) -> anyhow::Result<Given> {
        self.check_path("crosvm", ",\"")?;
        self.check_connects("crosvm")?;
        let device = format!("net,socket={}", self.socket);
        let memory = format!("size={}", self.memory());
        let arguments = ["--mem".to_string(), memory, "--vhost-user".to_string(), device];
        let notes = ["it asks the port for its MAC address, and how many queues it has"];
        Ok(Given::arguments("crosvm", &arguments, &notes))
    }

    fn uml(&self) -> anyhow::Result<Given> {
        // One word of a kernel's command line, in which a colon starts the device's type.
        self.check_path("User Mode Linux", ": \"")?;
        self.check_connects("User Mode Linux")?;
        /// Virtio device type: network (virtio 1.2 §5).
        const NETWORK: u32 = 1;
        let device = format!("virtio_uml.device={}:{NETWORK}", self.socket);
        let notes = [
            "the modules failover, net_failover and virtio_net may have to be loaded in the guest",
            "the memory must be in /dev/shm: start it without TMPDIR, TMP and TEMP",
        ];
        Ok(Given::arguments("uml", &[format!("mem={}M", self.memory()), device], &notes))
    }

    fn dpdk(&self) -> anyhow::Result<Given> {
        self.check_path("DPDK", ",")?;
        let Self { socket, mac, queues, .. } = self;
        let packed = u8::from(self.packed);
        let mut device =
            format!("net_virtio_user0,path={socket},queues={queues},packed_vq={packed},mac={mac}");
        if self.program_listens {
            device.push_str(",server=1");
        }
        let notes = ["these are options of DPDK itself: they come before the -- of an application"];
        Ok(Given::arguments("dpdk", &["--vdev".to_string(), device], &notes))
    }

    fn check_path(&self, program: &str, forbidden: &str) -> anyhow::Result<()> {
        match self.socket.chars().find(|&character| forbidden.contains(character)) {
            None => Ok(()),
            Some(character) => {
                let (name, socket) = (&self.name, &self.socket);
                bail!(
                    "{name}: {program} takes no path with {character:?} ({socket}): choose another"
                )
            }
        }
    }

    fn check_connects(&self, program: &str) -> anyhow::Result<()> {
        if self.program_listens {
            bail!("{}: {program} only connects, it cannot listen: use a vm: port", self.name);
        }
        Ok(())
    }
}

impl Given {
    fn arguments(program: &'static str, arguments: &[String], notes: &[&str]) -> Self {
        let notes = notes.iter().map(ToString::to_string).collect();
        Self { program, arguments: arguments.to_vec(), xml: None, notes }
    }

    /// For people; among others with a heading.
    fn text(&self, with_heading: bool) -> String {
        let mut text = String::new();
        if with_heading {
            let _ = writeln!(text, "# {}", self.program);
        }
        // An option and its value on one line, as they would be typed.
        let mut line = String::new();
        let mut lines = Vec::new();
        for argument in &self.arguments {
            if argument.starts_with('-') && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            let separator = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{separator}{}", quoted(argument));
        }
        lines.extend(Some(line).filter(|line| !line.is_empty()));
        if !lines.is_empty() {
            let _ = writeln!(text, "{}", lines.join(" \\\n"));
        }
        text.push_str(self.xml.as_deref().unwrap_or_default());
        for note in self.notes.iter().filter(|_| with_heading) {
            let _ = writeln!(text, "# {note}");
        }
        if with_heading {
            text.push('\n');
        }
        text
    }
}

/// Whether this user may use that device.
fn opens(device: &str) -> bool {
    fs::File::options().read(true).write(true).open(device).is_ok()
}

/// For a shell, quoted only if that is needed.
fn quoted(argument: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,:+@%".contains(&byte);
    match !argument.is_empty() && argument.bytes().all(is_plain) {
        true => argument.to_string(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

/// For an attribute of XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('\'', "&apos;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(socket: &str) -> Attachment {
        Attachment {
            name: "vm0".into(),
            socket: socket.into(),
            program_listens: false,
            mac: "52:54:00:00:00:01".into(),
            mtu: Some(9000),
            has_mtu_of_uplinks: false,
            packed: true,
            queues: 1,
            memory_mib: Some(256),
            qemu: "7.2".parse().ok(),
            has_kvm: true,
        }
    }

    #[test]
    fn every_program_is_given_the_socket_and_what_the_port_has() {
        for &program in FrontEnd::value_variants() {
            let given = attachment("/run/vm0.sock").given(program).expect("possible");
            let text = given.text(true);
            assert!(text.contains("/run/vm0.sock"), "{text}");
            assert!(given.arguments.is_empty() != given.xml.is_none(), "{text}");
        }
        let qemu = attachment("/run/vm0.sock").qemu();
        let device = "virtio-net-pci,netdev=net-vm0,mac=52:54:00:00:00:01,rx_queue_size=1024,\
                      tx_queue_size=1024,host_mtu=9000";
        assert_eq!(qemu.arguments.last().map(String::as_str), Some(device));
    }

    #[test]
    fn paths_are_written_as_each_program_reads_them() {
        let odd = attachment("/run/a,b 'c'.sock");
        assert!(odd.qemu().text(false).contains(r"path=/run/a,,b '\''c'\''.sock,reconnect=1'"));
        let xml = odd.libvirt().text(false);
        assert!(xml.contains("path='/run/a,b &apos;c&apos;.sock'"));
        let driver = "  <driver rx_queue_size='1024' tx_queue_size='1024'/>\n";
        assert!(xml.contains(driver), "{xml}");
        assert!(odd.dpdk().is_err() && odd.crosvm().is_err() && odd.uml().is_err());
        assert!(attachment("/run/a:b.sock").uml().is_err());
    }

    #[test]
    fn several_queues_are_said_as_each_program_takes_them() {
        let pairs = Attachment { queues: 4, ..attachment("/s") };
        let text = |program| pairs.given(program).expect("possible").text(false);
        let qemu = text(FrontEnd::Qemu);
        assert!(qemu.contains("chardev=chr-vm0,queues=4 "), "{qemu}");
        assert!(qemu.contains(",mq=on,vectors=10\n"), "{qemu}");
        assert!(text(FrontEnd::Libvirt).contains("<driver queues='4' rx_queue_size="));
        assert!(text(FrontEnd::CloudHypervisor).contains(",num_queues=8"));
        assert!(text(FrontEnd::Dpdk).contains(",queues=4,"));
    }

    /// None of them offers the feature unless it was given a number.
    #[test]
    fn who_tells_no_mtu_that_ringway_finds_out_is_said() {
        let auto = Attachment { mtu: None, has_mtu_of_uplinks: true, ..attachment("/s") };
        for program in [FrontEnd::Qemu, FrontEnd::Libvirt, FrontEnd::CloudHypervisor] {
            let said = |it: &Attachment| it.given(program).expect("possible").text(true);
            assert!(said(&auto).contains("# mtu=auto: "), "{}", said(&auto));
            assert!(!said(&attachment("/s")).contains("mtu=auto"));
        }
    }

    #[test]
    fn qemu_is_given_what_its_version_takes_and_no_packed_rings() {
        for (version, way) in [
            (Some("7.2"), ",reconnect=1 "),
            (Some("9.2"), ",reconnect-ms=1000 "),
            (None, ",reconnect-ms=1000 "),
        ] {
            let qemu = version.map(|text| text.parse().expect("a version"));
            let given = Attachment { qemu, ..attachment("/s") }.qemu();
            let text = given.text(true);
            assert!(text.contains(way) && !text.contains(",packed=on"), "{text}");
            let is_unknown = text.contains("# for QEMU from 9.2 on");
            assert_eq!(is_unknown, version.is_none(), "{text}");
        }
        assert!(!attachment("/s").qemu().text(false).contains("packed"));
        assert!(!attachment("/s").libvirt().text(false).contains("packed"));
    }

    /// Before version 8 it ends in software emulation, where a guest uses vectors.
    #[test]
    fn an_old_qemu_without_kvm_is_given_no_vectors() {
        for (version, has_kvm, queues, vectors) in [
            ("7.2", false, 1, Some(",vectors=0")),
            ("7.2", false, 4, Some(",mq=on,vectors=0")),
            ("7.2", true, 1, None),
            ("8.0", false, 1, None),
            ("8.0", false, 4, Some(",mq=on,vectors=10")),
        ] {
            let qemu = version.parse().ok();
            let given = Attachment { qemu, has_kvm, queues, ..attachment("/s") }.qemu();
            let device = given.arguments.last().expect("a device");
            match vectors {
                Some(vectors) => assert!(device.ends_with(vectors), "{version}: {device}"),
                None => assert!(!device.contains("vectors"), "{version}: {device}"),
            }
            let needs_kvm = given.notes.iter().any(|note| note.contains("needs -accel kvm"));
            assert_eq!(needs_kvm, version == "7.2" && has_kvm, "{:?}", given.notes);
        }
    }

    #[test]
    fn notes_are_only_about_what_is_left_to_do() {
        let told = Attachment { has_kvm: false, ..attachment("/s") };
        assert_eq!(told.qemu().notes, Vec::<String>::new());
        let untold = Attachment { memory_mib: None, ..told };
        let note = "the guest has 512 MiB: --memory 4096 in place of -m gives it more";
        assert_eq!(untold.qemu().notes, [note]);
        assert!(untold.qemu().text(false).contains("-m 512M "));
    }

    #[test]
    fn a_port_that_connects_needs_a_program_that_listens() {
        let connecting = Attachment { program_listens: true, ..attachment("/s") };
        assert!(connecting.qemu().text(false).contains("server=on"));
        assert!(connecting.libvirt().text(false).contains("mode='server'></source>"));
        assert!(connecting.dpdk().expect("possible").text(false).contains("server=1"));
        assert!(connecting.uml().is_err() && connecting.crosvm().is_err());
    }
}

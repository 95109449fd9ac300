//! Bringing up a device that is made of a few variables: the order of the steps, and every way in
//! which a device can refuse or misbehave meanwhile.

use ringway_driver::{
    Arena, BringUpError, BroughtUp, Doorbell, QueueStart, Queues, Transport, Wanted, bring_up,
    status,
};
use ringway_net::{CONFIG_LEN, Features, MacAddress, NetConfig};
use ringway_virtq::{Format, SharedSlice};

#[derive(Debug)]
struct NoDoorbell;

impl Doorbell for NoDoorbell {
    fn kick(&self) {}
}

/// A device, and everything it was told in order.
#[derive(Debug)]
struct Fake {
    offered: Features,
    accepted: Features,
    status: u8,
    told: Vec<String>,
    started: Vec<QueueStart>,
    config: [u8; CONFIG_LEN],
    generation: u32,
    queue_size_max: u16,
    stuck: bool,
    refuses: bool,
    /// Refuses unless all of these are accepted.
    insists_on: Features,
    restless: bool,
}

impl Default for Fake {
    fn default() -> Self {
        let config = NetConfig {
            mac: MacAddress::local(7),
            link_up: true,
            announce: false,
            max_queue_pairs: 4,
            mtu: 9000,
        };
        Self {
            offered: Features::OFFERED | Features::MQ | Features::RSS,
            accepted: Features::empty(),
            status: 0xff,
            told: Vec::new(),
            started: Vec::new(),
            config: config.encode(),
            generation: 0,
            queue_size_max: 1024,
            stuck: false,
            refuses: false,
            insists_on: Features::empty(),
            restless: false,
        }
    }
}

impl Transport for Fake {
    type Error = &'static str;
    type Doorbell = NoDoorbell;

    fn status(&mut self) -> Result<u8, Self::Error> {
        Ok(self.status)
    }

    fn set_status(&mut self, status: u8) -> Result<(), Self::Error> {
        self.told.push(format!("status {status}"));
        self.status = match status {
            0 if self.stuck => 1,
            with if self.refuses || !self.accepted.contains(self.insists_on) => {
                with & !status::FEATURES_OK
            }
            other => other,
        };
        Ok(())
    }

    fn offered_features(&mut self) -> Result<Features, Self::Error> {
        Ok(self.offered)
    }

    fn accept_features(&mut self, features: Features) -> Result<(), Self::Error> {
        self.told.push("features".to_string());
        self.accepted = features;
        Ok(())
    }

    fn queue_size_max(&mut self, _: u16) -> Result<u16, Self::Error> {
        Ok(self.queue_size_max)
    }

    fn start_queue(&mut self, start: &QueueStart) -> Result<NoDoorbell, Self::Error> {
        self.told.push(format!("queue {}", start.queue));
        self.started.push(*start);
        Ok(NoDoorbell)
    }

    fn config_generation(&mut self) -> Result<u32, Self::Error> {
        self.generation += u32::from(self.restless);
        Ok(self.generation)
    }

    fn read_config(&mut self, offset: u16, into: &mut [u8]) -> Result<(), Self::Error> {
        let field = self.config.get(usize::from(offset)..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(field.ok_or("config too short")?);
        Ok(())
    }
}

#[repr(align(4096))]
struct Memory([u8; 1 << 20]);

fn up(
    fake: &mut Fake,
    wanted: &Wanted,
) -> Result<BroughtUp<NoDoorbell>, BringUpError<&'static str>> {
    let memory = Box::leak(Box::new(Memory([0xa5; 1 << 20])));
    // SAFETY: the memory is leaked, so it outlives everything; only the slice touches it.
    let shared = unsafe { SharedSlice::new(memory.0.as_mut_ptr(), memory.0.len()) };
    bring_up(fake, &mut Arena::new(shared, 0x10_0000), wanted)
}

fn failure(fake: &mut Fake) -> BringUpError<&'static str> {
    let error = up(fake, &Wanted::DEFAULT).expect_err("it must not come up");
    assert_eq!(fake.told.last().map(String::as_str), Some("status 128"), "FAILED is told");
    error
}

#[test]
fn spec_3_1_1_steps_come_in_order() {
    let mut fake = Fake::default();
    let up = up(&mut fake, &Wanted::DEFAULT).expect("it comes up");
    let steps = ["status 0", "status 1", "status 3", "features", "status 11", "queue 0", "queue 1"];
    assert_eq!(fake.told[..7], steps);
    assert_eq!(fake.told[7..], ["queue 2", "status 15"]);
    assert!(matches!(up.queues, Queues::Packed(ref set) if set.pairs.len() == 1));
    assert_eq!(up.config.mac, MacAddress::local(7));
    assert_eq!(up.config.mtu, 9000);
    assert_eq!(up.config.max_queue_pairs, 1, "MQ was not accepted");
    assert!(!fake.accepted.intersects(Features::MQ | Features::RSS));
    assert!(fake.started.iter().all(|start| start.vector.is_none()));
}

#[test]
fn the_format_and_the_sizes_follow_the_device() {
    for (packed, max, size) in
        [(false, 300, 256), (true, 300, 256), (false, 100, 64), (true, 100, 100)]
    {
        let mut fake = Fake { queue_size_max: max, ..Fake::default() };
        fake.offered.set(Features::RING_PACKED, packed);
        up(&mut fake, &Wanted::DEFAULT).expect("it comes up");
        let format = if packed { Format::Packed } else { Format::Split };
        assert!(fake.started[..2].iter().all(|start| start.size == size && start.format == format));
    }
}

#[test]
fn spec_5_1_2_the_controlq_is_behind_all_pairs_of_the_device() {
    let accept = Wanted::DEFAULT.accept | Features::MQ;
    let wanted = Wanted { accept, queue_pairs: 3, vectors: true, ..Wanted::DEFAULT };
    let mut fake = Fake::default();
    up(&mut fake, &wanted).expect("it comes up");
    let started: Vec<_> = fake.started.iter().map(|start| (start.queue, start.vector)).collect();
    let expected = [0, 1, 2, 3, 4, 5, 8].map(|queue| (queue, Some(queue)));
    assert_eq!(started, expected);
    // A device that has none at all still has one.
    let mut fake = Fake::default();
    fake.config[8..10].fill(0);
    up(&mut fake, &wanted).expect("it comes up");
    assert_eq!(fake.started.len(), 3);
}

#[test]
fn fields_without_their_feature_are_not_read() {
    let mut fake = Fake { config: [0xee; CONFIG_LEN], ..Fake::default() };
    fake.offered -= Features::MAC | Features::STATUS | Features::MTU;
    let up = up(&mut fake, &Wanted::DEFAULT).expect("it comes up");
    assert_eq!((up.config.mac, up.config.mtu), (MacAddress::ZERO, 1500));
    assert!(up.config.link_up);
}

/// Features that the device offers by default and the driver does not accept.
const DECLINED: Features =
    Features::OFFERED.union(Features::MQ).union(Features::RSS).difference(Wanted::DEFAULT.accept);

#[test]
fn a_device_that_does_not_play_along_is_given_up() {
    let stuck = Fake { stuck: true, ..Fake::default() };
    let refuses = Fake { refuses: true, ..Fake::default() };
    let restless = Fake { restless: true, ..Fake::default() };
    let without = Fake { queue_size_max: 0, ..Fake::default() };
    let small = Fake { queue_size_max: 2, ..Fake::default() };
    let legacy = Fake { offered: Features::OFFERED - Features::VERSION_1, ..Fake::default() };
    let large = Fake { queue_size_max: 32768, ..Fake::default() };
    for (mut fake, expected) in [
        (stuck, BringUpError::StuckInReset),
        (refuses, BringUpError::FeaturesRefused(DECLINED)),
        (restless, BringUpError::ConfigRestless),
        (without, BringUpError::NoQueue(0)),
        (small, BringUpError::NoQueue(2)),
        (legacy, BringUpError::Legacy),
    ] {
        assert_eq!(failure(&mut fake), expected);
    }
    let mut large = large;
    let wanted = Wanted { queue_size: 32768, ..Wanted::DEFAULT };
    assert_eq!(up(&mut large, &wanted).err(), Some(BringUpError::ArenaFull));
}

/// Features that the driver accepts where a device offers them.
const ACCEPTED: &str = "CSUM GUEST_CSUM MTU MAC GUEST_TSO4 GUEST_TSO6 GUEST_ECN HOST_TSO4 \
                        HOST_TSO6 MRG_RXBUF STATUS CTRL_VQ INDIRECT_DESC EVENT_IDX VERSION_1 \
                        RING_PACKED IN_ORDER RING_RESET";

#[test]
fn each_feature_is_accepted_or_ignored_or_named_where_a_device_insists_on_it() {
    let platform = Features::ACCESS_PLATFORM;
    let other = Wanted { accept: Wanted::DEFAULT.accept | platform, ..Wanted::DEFAULT };
    for bit in 0..u64::BITS {
        let feature = Features::from_bits_retain(1 << bit);
        let is_known = ACCEPTED.split(' ').any(|name| name == feature.to_string());
        for (wanted, accepts) in
            [(&Wanted::DEFAULT, is_known), (&other, is_known || feature == platform)]
        {
            let offered = Wanted::DEFAULT.accept | feature;
            let mut fake = Fake { offered, ..Fake::default() };
            up(&mut fake, wanted).expect("no device needs to be told");
            assert_eq!(fake.accepted.contains(feature), accepts, "{feature}");
            let mut fake = Fake { offered, insists_on: feature, ..Fake::default() };
            let refused = up(&mut fake, wanted).err();
            let expected = (!accepts).then_some(BringUpError::FeaturesRefused(feature));
            assert_eq!(refused, expected, "{feature}");
        }
    }
}

#[test]
fn a_refusal_names_what_devices_may_insist_on() {
    let offered = Features::OFFERED | Features::RING_RESET | Features::ACCESS_PLATFORM;
    let mut fake = Fake { offered, insists_on: Features::ACCESS_PLATFORM, ..Fake::default() };
    let text = failure(&mut fake).to_string();
    assert_eq!(text, "the device insists on features that were not accepted: ACCESS_PLATFORM");
}

#[test]
fn rings_start_zeroed_whatever_the_memory_held() {
    let mut fake = Fake::default();
    fake.offered -= Features::RING_PACKED;
    let up = up(&mut fake, &Wanted::DEFAULT).expect("it comes up");
    let Queues::Split(mut set) = up.queues else { panic!("split") };
    for pair in &mut set.pairs {
        use ringway_virtq::DriverQueue;
        assert_eq!(pair.receiveq.queue.pop_used(), Ok(None));
        assert_eq!(pair.transmitq.queue.pop_used(), Ok(None));
    }
}

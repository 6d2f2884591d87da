//! Real block devices: loop devices, which need root.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use plumbline_agent::deploy::in_place::{check_filesystem, examine};
use plumbline_agent::deploy::{BiosGrub, DiskPlan, Target, make_filesystems, wipe, write_table};
use protocol::latest::{Disk, Layout};

const SIZE_BYTES: u64 = 600 << 20;
const UUID: &str = "0b8b1f6e-5a5e-4c53-9d5e-1c7c8a3f0001";

fn run(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program).args(arguments).output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// A sparse file as a disk.
struct LoopDisk {
    _folder: tempfile::TempDir,
    node: String,
    target: Target,
    layout: Layout,
    plan: DiskPlan,
}

impl LoopDisk {
    /// `None`, with the reason printed, where there are no loop devices to be had.
    fn new(sector_bytes: u32, esp_mib: u32) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            eprintln!("skipped: loop devices need root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(SIZE_BYTES).unwrap();
        let (code, node) = run(
            "losetup",
            &[
                "--find",
                "--show",
                "--sector-size",
                &sector_bytes.to_string(),
                path.to_str().unwrap(),
            ],
        );
        if code != Some(0) {
            eprintln!("skipped: losetup makes no device with sectors of {sector_bytes} bytes");
            return None;
        }
        let disk = Disk {
            name: node.trim_start_matches("/dev/").to_owned(),
            size_bytes: SIZE_BYTES,
            sector_bytes,
            ..Disk::default()
        };
        let layout = Layout {
            esp_mib,
            esp_volume_id: "12AB34CD".to_owned(),
            esp_label: "PL12AB34CD".to_owned(),
            root_uuid: UUID.parse().unwrap(),
        };
        let plan = DiskPlan::new(&disk, &layout).unwrap();
        let target = Target::of_machine(&disk);
        Some(Self {
            _folder: folder,
            node,
            target,
            layout,
            plan,
        })
    }

    fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        File::open(&self.node).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) {
        let device = OpenOptions::new().write(true).open(&self.node).unwrap();
        device.write_all_at(bytes, at).unwrap();
        device.sync_all().unwrap();
    }

    fn forget_partitions(&self) {
        run("partx", &["--delete", &self.node]);
        assert!(self.target.partitions().is_empty());
    }

    fn probe(node: &Path, tag: &str) -> String {
        run(
            "blkid",
            &[
                "--probe",
                "--output",
                "value",
                "--match-tag",
                tag,
                node.to_str().unwrap(),
            ],
        )
        .1
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        run("partx", &["--delete", &self.node]);
        run("losetup", &["--detach", &self.node]);
    }
}

/// An md superblock of version 1.0 for a device of `sectors` × 512 bytes, and where it belongs: 8 KiB before the end,
/// rounded to 4 KiB (linux/raid/md_p.h; drivers/md/md.c, super_1_load).
fn raid_superblock(sectors: u64) -> (u64, Vec<u8>) {
    let offset = (sectors - 16) & !7;
    let mut block = vec![0_u8; 256];
    block[0..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    block[4..8].copy_from_slice(&1_u32.to_le_bytes());
    block[16..32].copy_from_slice(&[7; 16]);
    block[32..40].copy_from_slice(b"old-raid");
    block[72..76].copy_from_slice(&1_u32.to_le_bytes());
    block[92..96].copy_from_slice(&2_u32.to_le_bytes());
    block[144..152].copy_from_slice(&offset.to_le_bytes());
    let sum: u64 = block
        .chunks(4)
        .map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap())))
        .sum();
    let folded = u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap();
    block[216..220].copy_from_slice(&folded.to_le_bytes());
    (offset * 512, block)
}

fn installs_on(sector_bytes: u32, esp_mib: u32) {
    let Some(disk) = LoopDisk::new(sector_bytes, esp_mib) else {
        return;
    };
    wipe(&disk.target).unwrap();
    write_table(&disk.target, &disk.plan).unwrap();
    make_filesystems(&disk.target, &disk.plan, &disk.layout).unwrap();

    let block = if sector_bytes == 4096 {
        LogicalBlockSize::Lb4096
    } else {
        LogicalBlockSize::Lb512
    };
    let table = GptConfig::new()
        .logical_block_size(block)
        .only_valid_headers(true)
        .open(&disk.node)
        .unwrap();
    let partitions = table.partitions();
    assert_eq!(
        partitions[&1].part_type_guid.guid.to_string().to_uppercase(),
        "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
    );
    assert_eq!(
        partitions[&2].part_type_guid.guid.to_string().to_uppercase(),
        "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
    );
    let bios = &partitions[&3];
    assert_eq!(
        bios.part_type_guid.guid.to_string().to_uppercase(),
        "21686148-6449-6E6F-744E-656564454649"
    );
    let bytes = |sectors: u64| sectors * u64::from(sector_bytes);
    assert_eq!((bytes(bios.first_lba), bytes(bios.last_lba + 1)), (1 << 20, 2 << 20));
    assert_eq!(bytes(partitions[&1].first_lba), 2 << 20);
    // Byte 450: the type of the protective entry.
    assert_eq!(disk.bytes(450, 1), [0xee]);

    let (esp, root) = (disk.target.partition_node(1), disk.target.partition_node(2));
    assert_eq!(LoopDisk::probe(&esp, "TYPE"), "vfat");
    assert_eq!(LoopDisk::probe(&esp, "VERSION"), "FAT32");
    assert_eq!(LoopDisk::probe(&esp, "UUID"), "12AB-34CD");
    assert_eq!(LoopDisk::probe(&root, "TYPE"), "ext4");
    assert_eq!(LoopDisk::probe(&root, "UUID"), UUID);
    assert_eq!(LoopDisk::probe(&root, "LABEL"), "root");
    let (code, found) = run("e2fsck", &["-fn", root.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{found}");
    let (code, found) = run("fsck.fat", &["-n", esp.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{found}");
}

#[test]
fn a_disk_with_sectors_of_512_bytes_is_made_ready() {
    installs_on(512, 64);
}

#[test]
fn a_disk_with_sectors_of_4096_bytes_is_made_ready() {
    installs_on(4096, 300);
}

/// GRUB's first sector and a core of three sectors, as far as their fields go.
fn grub() -> (Vec<u8>, Vec<u8>) {
    let (mut boot, mut core) = (vec![0x11; 512], vec![0x22; 1300]);
    boot[0x5a..0x68].copy_from_slice(&[0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0xeb, 0x05]);
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    core[500..512].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x20, 0x08]);
    (boot, core)
}

#[test]
fn a_bios_finds_grub_and_the_partition_table_stays() {
    let Some(disk) = LoopDisk::new(512, 64) else { return };
    // What an older system left where GRUB goes.
    disk.overwrite(0, &vec![0xee; 3 << 20]);
    wipe(&disk.target).unwrap();
    write_table(&disk.target, &disk.plan).unwrap();
    make_filesystems(&disk.target, &disk.plan, &disk.layout).unwrap();
    let (table, headers) = (disk.bytes(440, 72), disk.bytes(512, 33 * 512));
    let (boot, core) = grub();
    BiosGrub::new(boot, core).write(&disk.target, &disk.plan).unwrap();

    assert_eq!(disk.bytes(0, 8), [0x11; 8]);
    assert_eq!(disk.bytes(0x5c, 8), 2048_u64.to_le_bytes(), "where the core begins");
    assert_eq!(disk.bytes(440, 72), table);
    assert_eq!(disk.bytes(512, 33 * 512), headers);
    let partition = disk.bytes(1 << 20, 1 << 20);
    assert_eq!(partition[500..508], 2049_u64.to_le_bytes(), "where it goes on");
    assert_eq!(partition[512..1300], [0x22; 788]);
    assert!(partition[1300..].iter().all(|byte| *byte == 0), "nothing old behind it");
    let esp = disk.target.partition_node(1);
    assert_eq!(LoopDisk::probe(&esp, "UUID"), "12AB-34CD");
}

#[test]
fn a_disk_without_a_partition_table_gets_no_grub() {
    let Some(disk) = LoopDisk::new(512, 64) else { return };
    let (boot, core) = grub();
    let error = BiosGrub::new(boot, core)
        .write(&disk.target, &disk.plan)
        .unwrap_err()
        .to_string();
    assert!(error.contains("protective"), "{error}");
    assert!(
        disk.bytes(0, 2 << 20).iter().all(|byte| *byte == 0),
        "nothing was written"
    );
}

/// metal-stack/metal-hammer#61, coreos-installer#444 and their family, a: the first sectors are zeroed, the backup table is
/// left, and the next partition tool restores it.
#[test]
fn metal_hammer_61_a_backup_table_at_the_end_does_not_survive() {
    for sector in [512, 4096] {
        let Some(disk) = LoopDisk::new(sector, 300) else { return };
        write_table(&disk.target, &disk.plan).unwrap();
        disk.forget_partitions();
        // What a careless tool does: the first 34 sectors go, the backup stays.
        disk.overwrite(0, &vec![0; 34 * usize::try_from(sector).unwrap()]);
        let backup = SIZE_BYTES - u64::from(sector);
        assert_eq!(disk.bytes(backup, 8), b"EFI PART", "the test needs a backup table");
        wipe(&disk.target).unwrap();
        let last = disk.bytes(SIZE_BYTES - (1 << 20), 1 << 20);
        assert!(last.iter().all(|byte| *byte == 0), "sectors of {sector} bytes");
    }
}

/// The same family, b: a superblock that survives assembles its array in the middle of the installation.
#[test]
fn metal_hammer_61_a_raid_superblock_at_the_end_does_not_survive() {
    let Some(disk) = LoopDisk::new(512, 64) else { return };
    // On the whole disk.
    let (at, block) = raid_superblock(SIZE_BYTES / 512);
    disk.overwrite(at, &block);
    assert_eq!(
        LoopDisk::probe(Path::new(&disk.node), "TYPE"),
        "linux_raid_member",
        "the test needs a superblock"
    );
    wipe(&disk.target).unwrap();
    assert!(disk.bytes(at, 256).iter().all(|byte| *byte == 0));

    // On a partition the kernel knows.
    write_table(&disk.target, &disk.plan).unwrap();
    let (at, block) = raid_superblock(disk.plan.root.length);
    let at = at + disk.plan.root.first * 512;
    disk.overwrite(at, &block);
    assert_eq!(
        LoopDisk::probe(&disk.target.partition_node(2), "TYPE"),
        "linux_raid_member"
    );
    wipe(&disk.target).unwrap();
    assert!(disk.bytes(at, 256).iter().all(|byte| *byte == 0), "of a partition");

    // On a partition whose table is gone, where the new root will end.
    disk.overwrite(at, &block);
    wipe(&disk.target).unwrap();
    write_table(&disk.target, &disk.plan).unwrap();
    make_filesystems(&disk.target, &disk.plan, &disk.layout).unwrap();
    assert!(
        disk.bytes(at, 256).iter().all(|byte| *byte == 0),
        "of a partition without a table"
    );
    assert_eq!(LoopDisk::probe(&disk.target.partition_node(2), "TYPE"), "ext4");
}

/// The same family, b: only what is meant is touched.
#[test]
fn metal_hammer_61_a_disk_in_use_is_left_alone() {
    let Some(disk) = LoopDisk::new(512, 64) else { return };
    write_table(&disk.target, &disk.plan).unwrap();
    make_filesystems(&disk.target, &disk.plan, &disk.layout).unwrap();
    let (folder, root) = (tempfile::tempdir().unwrap(), disk.target.partition_node(2));
    let (code, _) = run("mount", &[root.to_str().unwrap(), folder.path().to_str().unwrap()]);
    assert_eq!(code, Some(0));
    let result = wipe(&disk.target);
    fs::write(folder.path().join("alive"), "yes").unwrap();
    assert_eq!(run("umount", &[folder.path().to_str().unwrap()]).0, Some(0));
    assert!(result.unwrap_err().to_string().contains("is mounted"));
    assert_eq!(LoopDisk::probe(&root, "TYPE"), "ext4");
}

fn ready() -> Option<LoopDisk> {
    let disk = LoopDisk::new(512, 64)?;
    wipe(&disk.target).unwrap();
    write_table(&disk.target, &disk.plan).unwrap();
    make_filesystems(&disk.target, &disk.plan, &disk.layout).unwrap();
    Some(disk)
}

#[test]
fn only_a_sound_filesystem_of_this_node_is_installed_over() {
    let Some(disk) = ready() else { return };
    let own = disk.layout.root_uuid;
    let other = "0b8b1f6e-5a5e-4c53-9d5e-1c7c8a3f0002".parse().unwrap();
    assert_eq!(examine(&disk.target, &disk.plan, &[other, own]).unwrap().root, own);
    check_filesystem(&disk.target).unwrap();

    let reason = |plan: &DiskPlan, known: &[_]| examine(&disk.target, plan, known).unwrap_err();
    assert!(reason(&disk.plan, &[other]).contains("not one that this node was given"));
    assert!(reason(&disk.plan, &[]).contains("not installed before"));
    let mut wider = disk.layout.clone();
    wider.esp_mib = 128;
    let wider = DiskPlan::new(disk.target.disk(), &wider).unwrap();
    assert!(reason(&wider, &[own]).contains("divided otherwise"));

    let (folder, root) = (tempfile::tempdir().unwrap(), disk.target.partition_node(2));
    let (code, _) = run("mount", &[root.to_str().unwrap(), folder.path().to_str().unwrap()]);
    assert_eq!(code, Some(0));
    let mounted = reason(&disk.plan, &[own]);
    assert_eq!(run("umount", &[folder.path().to_str().unwrap()]).0, Some(0));
    assert!(mounted.contains("is mounted"), "{mounted}");
}

#[test]
fn a_filesystem_with_errors_is_not_installed_over() {
    let Some(disk) = ready() else { return };
    let root_at = disk.plan.root.first * 512;
    // The inodes of the first group, and then the superblock.
    disk.overwrite(root_at + 8 * 4096, &vec![0xff; 4 << 20]);
    assert!(examine(&disk.target, &disk.plan, &[disk.layout.root_uuid]).is_ok());
    let reason = check_filesystem(&disk.target).unwrap_err();
    assert!(reason.contains("errors"), "{reason}");
    disk.overwrite(root_at, &[0; 4096]);
    let reason = examine(&disk.target, &disk.plan, &[disk.layout.root_uuid]).unwrap_err();
    assert!(reason.contains("no ext4"), "{reason}");
}

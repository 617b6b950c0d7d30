//! Whole boots: stock firmware, `dist/wireboot.efi`, real servers, a real kernel. Each test asserts what the user sees on the
//! console, and the bytes that came where there are any.

#![forbid(unsafe_code)]

mod aftermath;
mod callers;
mod cards;
mod controllers;
mod doctor;
mod doctor_cards;
mod failures;
mod firmware_drivers;
mod fixture;
mod instructions;
mod ipv6;
mod ipxe;
mod ladder;
mod lent_cards;
mod loaders;
mod loaders_measured;
mod lying_card;
mod memory;
mod menu;
mod near_end;
mod newest_ipxe;
mod our_card;
mod our_card_guests;
mod panics;
mod paths;
mod processors;
mod programs;
mod recorder;
mod secure_boot;
mod servers;
mod site;
mod snapshots;
mod soak;
mod stateless;
mod stick;
mod successes;
mod system;
mod throughput;
mod two_versions;

use std::cmp::Reverse;
use std::fs::OpenOptions;
use std::io::Write;
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::Context;
use libtest_mimic::{Arguments, Failed, Trial};
use wireboot_lab::guest;
use wireboot_lab::ip::IpVersion::{V4, V6};
use wireboot_lab::netns::Lab;
use wireboot_lab::snapshot;

type Case = fn(&Lab) -> anyhow::Result<()>;

/// In this order; the plainest first.
const CASES: &[(&str, Case)] = &[
    ("from_our_server", successes::from_our_server),
    (
        "second_and_third_of_a_kind",
        snapshots::second_and_third_of_a_kind,
    ),
    (
        "from_dnsmasq_atftpd_nginx",
        successes::from_dnsmasq_atftpd_nginx,
    ),
    ("from_kea", successes::from_kea),
    (
        "from_kea_with_our_proxy",
        successes::from_kea_with_our_proxy,
    ),
    (
        "from_kea_with_dnsmasq_proxy",
        successes::from_kea_with_dnsmasq_proxy,
    ),
    ("by_http_boot", successes::by_http_boot),
    ("pxe_from_our_server_over_ipv6", ipv6::pxe_from_our_server),
    (
        "http_boot_from_our_server_over_ipv6",
        ipv6::http_boot_from_our_server,
    ),
    ("pxe_from_dnsmasq_over_ipv6", ipv6::pxe_from_dnsmasq),
    (
        "http_boot_from_dnsmasq_over_ipv6",
        ipv6::http_boot_from_dnsmasq,
    ),
    ("pxe_from_kea_over_ipv6", ipv6::pxe_from_kea),
    ("http_boot_from_kea_over_ipv6", ipv6::http_boot_from_kea),
    (
        "pxe_from_kea_with_our_proxy_over_ipv6",
        ipv6::pxe_from_kea_with_our_proxy,
    ),
    (
        "http_boot_from_kea_with_our_proxy_over_ipv6",
        ipv6::http_boot_from_kea_with_our_proxy,
    ),
    ("stateless_answers_of_dnsmasq", ipv6::stateless_from_dnsmasq),
    ("stateless_answers_of_kea", ipv6::stateless_from_kea),
    ("stick_with_stateless_dhcpv6", stick::with_stateless_dhcpv6),
    ("stick_with_a_router_alone", stick::with_a_router_alone),
    (
        "stick_with_a_router_and_our_proxy",
        stick::with_a_router_and_our_proxy,
    ),
    ("stick_without_a_router", stick::without_a_router),
    ("ipv6_is_a_black_hole", two_versions::ipv6_is_a_black_hole),
    ("ipv4_leads_nowhere", two_versions::ipv4_leads_nowhere),
    (
        "the_slower_version_leads_there",
        two_versions::the_slower_version_leads_there,
    ),
    (
        "the_slower_version_has_the_name",
        two_versions::the_slower_version_has_the_name,
    ),
    (
        "the_slower_version_has_the_file",
        two_versions::the_slower_version_has_the_file,
    ),
    (
        "the_other_version_has_the_name",
        two_versions::the_other_version_has_the_name,
    ),
    ("small_link_is_told", paths::small_link_is_told),
    ("small_link_swallows", paths::small_link_swallows),
    ("small_link_http_with_icmp", |lab| {
        paths::boots(lab, V4, "http", true)
    }),
    ("small_link_http_without_icmp", |lab| {
        paths::boots(lab, V4, "http", false)
    }),
    ("small_link_tftp_with_icmp", |lab| {
        paths::boots(lab, V4, "tftp", true)
    }),
    ("small_link_tftp_without_icmp", |lab| {
        paths::boots(lab, V4, "tftp", false)
    }),
    ("small_link_http_over_ipv6_with_icmp", |lab| {
        paths::boots(lab, V6, "http", true)
    }),
    ("small_link_http_over_ipv6_without_icmp", |lab| {
        paths::boots(lab, V6, "http", false)
    }),
    ("small_link_tftp_over_ipv6_with_icmp", |lab| {
        paths::boots(lab, V6, "tftp", true)
    }),
    ("small_link_tftp_over_ipv6_without_icmp", |lab| {
        paths::boots(lab, V6, "tftp", false)
    }),
    ("over_a_lossy_network", successes::over_a_lossy_network),
    (
        "server_restarts_in_mid_transfer",
        successes::server_restarts_in_mid_transfer,
    ),
    ("without_entropy_device", successes::without_entropy_device),
    ("right_checksums", successes::right_checksums),
    ("wrong_checksum", failures::wrong_checksum),
    ("missing_file", failures::missing_file),
    (
        "boot_file_that_is_not_text",
        failures::boot_file_that_is_not_text,
    ),
    ("no_dhcp_answer", failures::no_dhcp_answer),
    ("server_never_answers", failures::server_never_answers),
    ("truncated_kernel", failures::truncated_kernel),
    ("compressed_kernel", failures::compressed_kernel),
    (
        "configuration_with_errors",
        failures::configuration_with_errors,
    ),
    ("wrong_embedded_setting", failures::wrong_embedded_setting),
    ("wrong_load_option", failures::wrong_load_option),
    (
        "next_boot_option_has_the_network",
        aftermath::next_boot_option_has_the_network,
    ),
    (
        "next_boot_option_has_ipv6",
        aftermath::next_boot_option_has_ipv6,
    ),
    (
        "started_program_has_the_lease_over_ipv6",
        aftermath::started_program_has_the_lease_over_ipv6,
    ),
    ("wireboot_over_wireboot", aftermath::wireboot_over_wireboot),
    (
        "exit_boot_services_resets_the_device",
        aftermath::exit_boot_services_resets_the_device,
    ),
    ("arrows_and_enter_choose", menu::arrows_and_enter_choose),
    ("digit_chooses_at_once", menu::digit_chooses_at_once),
    (
        "time_out_starts_the_default",
        menu::time_out_starts_the_default,
    ),
    ("esc_leaves_the_menu", menu::esc_leaves_the_menu),
    ("esc_stops_a_download", menu::esc_stops_a_download),
    (
        "booted_from_the_second_card",
        cards::booted_from_the_second_card,
    ),
    ("first_card_without_link", cards::first_card_without_link),
    ("link_comes_late", cards::link_comes_late),
    ("link_falls_at_our_start", cards::link_falls_at_our_start),
    (
        "esc_leaves_the_wait_for_a_link",
        cards::esc_leaves_the_wait_for_a_link,
    ),
    ("over_an_82574l", cards::over_an_82574l),
    ("over_an_82540em", cards::over_an_82540em),
    (
        "over_a_legacy_virtio_card",
        cards::over_a_legacy_virtio_card,
    ),
    (
        "first_card_without_server",
        cards::first_card_without_server,
    ),
    ("over_our_card_by_pxe_twice", our_card::by_pxe_twice),
    (
        "over_our_card_with_several_engines",
        our_card::with_several_engines,
    ),
    (
        "our_card_restarts_in_mid_transfer",
        our_card::card_restarts_in_mid_transfer,
    ),
    (
        "server_in_the_card_by_pxe",
        our_card::server_in_the_card_by_pxe,
    ),
    (
        "server_in_the_card_installs",
        our_card::server_in_the_card_installs,
    ),
    (
        "server_in_the_card_by_http_boot",
        our_card::server_in_the_card_by_http_boot,
    ),
    (
        "server_in_the_card_over_ipv6",
        our_card::server_in_the_card_over_ipv6,
    ),
    (
        "server_in_the_card_by_tftp_alone",
        our_card::server_in_the_card_by_tftp_alone,
    ),
    (
        "server_in_the_card_in_chunks",
        our_card::server_in_the_card_in_chunks,
    ),
    (
        "server_in_a_card_that_is_asked_nothing",
        our_card::server_in_a_card_that_is_asked_nothing,
    ),
    (
        "server_in_the_card_while_a_file_changes",
        our_card::server_in_the_card_while_a_file_changes,
    ),
    (
        "linux_over_our_card_with_and_without_offloads",
        our_card_guests::linux_with_and_without_offloads,
    ),
    (
        "linux_over_our_card_by_four_pairs",
        our_card_guests::linux_by_four_pairs,
    ),
    ("ipxe_over_our_card", our_card_guests::ipxe),
    (
        "shim_and_grub_over_our_card",
        our_card_guests::shim_and_grub,
    ),
    (
        "ipxe_on_legacy_firmware_over_our_card",
        our_card_guests::ipxe_on_legacy_firmware,
    ),
    ("over_a_card_that_lies", lying_card::lies),
    ("over_a_card_at_a_models_speed", lying_card::slow),
    (
        "beside_a_guest_that_breaks_its_rings",
        lying_card::beside_a_hostile_guest,
    ),
    (
        "first_card_leads_elsewhere",
        cards::first_card_leads_elsewhere,
    ),
    (
        "embedded_first_card_leads_elsewhere",
        cards::embedded_first_card_leads_elsewhere,
    ),
    ("embedded_default_is_gone", cards::embedded_default_is_gone),
    ("in_a_vlan", cards::in_a_vlan),
    ("in_an_embedded_vlan", cards::in_an_embedded_vlan),
    ("over_an_rtl8139", firmware_drivers::over_an_rtl8139),
    ("over_a_vmxnet3", firmware_drivers::over_a_vmxnet3),
    (
        "by_option_over_an_e1000",
        firmware_drivers::by_option_over_an_e1000,
    ),
    (
        "by_undi_over_an_rtl8139",
        firmware_drivers::by_undi_over_an_rtl8139,
    ),
    (
        "by_undi_over_an_e1000",
        firmware_drivers::by_undi_over_an_e1000,
    ),
    (
        "by_undi_over_a_vmxnet3",
        firmware_drivers::by_undi_over_a_vmxnet3,
    ),
    (
        "undi_goes_back_to_the_firmware",
        firmware_drivers::undi_goes_back_to_the_firmware,
    ),
    ("no_undi_over_virtio", firmware_drivers::no_undi_over_virtio),
    (
        "by_configuration_over_virtio",
        firmware_drivers::by_configuration_over_virtio,
    ),
    (
        "by_option_over_virtio",
        firmware_drivers::by_option_over_virtio,
    ),
    (
        "relayed_over_an_rtl8139",
        firmware_drivers::relayed_over_an_rtl8139,
    ),
    ("relayed_over_virtio", firmware_drivers::relayed_over_virtio),
    (
        "exit_boot_services_finds_the_device_stopped",
        firmware_drivers::exit_boot_services_finds_the_device_stopped,
    ),
    (
        "firmware_has_its_driver_back",
        firmware_drivers::firmware_has_its_driver_back,
    ),
    (
        "ipxe_goes_on_over_the_firmwares_driver",
        ipxe::over_the_firmwares_driver,
    ),
    (
        "ipxe_goes_on_over_its_own_driver",
        ipxe::over_its_own_driver,
    ),
    ("ipxe_goes_on_over_its_interface", ipxe::over_its_interface),
    ("ipxe_goes_on_after_a_panic", ipxe::after_a_panic),
    (
        "newest_ipxe_goes_on_over_the_firmwares_driver",
        ipxe::newest_over_the_firmwares_driver,
    ),
    (
        "newest_ipxe_goes_on_over_its_interface",
        ipxe::newest_over_its_interface,
    ),
    ("shim_and_grub", loaders::shim_and_grub),
    ("grub_by_its_own_means", loaders::grub_by_its_own_means),
    ("shim_and_grub_over_ipv6", loaders::shim_and_grub_over_ipv6),
    (
        "shim_and_grub_from_a_disk",
        loaders::shim_and_grub_from_a_disk,
    ),
    (
        "shim_and_grub_from_a_disk_over_ipv6",
        loaders::shim_and_grub_from_a_disk_over_ipv6,
    ),
    ("shim_by_http_and_grub", loaders::shim_by_http_and_grub),
    (
        "shim_and_grub_by_http_over_ipv6",
        loaders::shim_and_grub_by_http_over_ipv6,
    ),
    (
        "shim_and_grub_over_the_firmwares_network",
        loaders::shim_and_grub_over_the_firmwares_network,
    ),
    ("grub_that_exits", loaders::grub_that_exits),
    ("panic_in_a_call", loaders::panic_in_a_call),
    ("ipxe_over_ours_boots", loaders::ipxe_boots),
    ("grub_over_http", near_end::grub_over_http),
    (
        "grub_over_http_by_its_own_means",
        near_end::grub_over_http_by_its_own_means,
    ),
    ("ipxe_over_ours_exits", loaders::ipxe_exits),
    ("callers_over_ours_by_http", callers::over_ours_by_http),
    ("callers_without_a_link", callers::no_link),
    ("callers_file_comes_anew", callers::file_comes_anew),
    ("callers_body_breaks_off", callers::body_breaks_off),
    ("callers_processor_is_lost", callers::processor_is_lost),
    (
        "callers_processor_is_not_ended",
        callers::processor_is_not_ended,
    ),
    ("callers_image_by_wds", callers::image_by_wds),
    ("callers_over_ours_over_ipv6", callers::over_ours_over_ipv6),
    ("callers_over_both", callers::over_both),
    ("newest_ipxe_boots", newest_ipxe::boots),
    (
        "newest_ipxe_does_not_go_round",
        newest_ipxe::does_not_go_round,
    ),
    ("newest_ipxe_exits", newest_ipxe::exits),
    ("lent_card_under_grub", lent_cards::shim_and_grub),
    ("lent_card_under_snponly", lent_cards::snponly),
    ("lent_card_comes_back", lent_cards::comes_back),
    ("lent_card_under_callers", lent_cards::callers),
    (
        "ipxe_by_its_own_driver_boots",
        controllers::ipxe_by_its_own_driver_boots,
    ),
    (
        "ipxe_by_its_own_driver_exits",
        controllers::ipxe_by_its_own_driver_exits,
    ),
    (
        "loader_leaves_all_open",
        controllers::loader_leaves_all_open,
    ),
    (
        "card_is_kept_until_it_is_disconnected",
        controllers::card_is_kept_until_it_is_disconnected,
    ),
    (
        "handed_over_without_dma",
        controllers::handed_over_without_dma,
    ),
    (
        "boot_services_end_in_the_middle_of_a_call",
        controllers::ends_in_the_middle_of_a_call,
    ),
    ("shell_reconnects", controllers::shell_reconnects),
    ("site_installer_by_dnsmasq", site::installer_by_dnsmasq),
    ("site_installer_over_ipv6", site::installer_over_ipv6),
    ("site_installer_by_kea", site::installer_by_kea),
    ("site_installer_by_a_proxy", site::installer_by_a_proxy),
    (
        "site_installer_by_a_pxe_menu",
        site::installer_by_a_pxe_menu,
    ),
    ("site_snponly_by_dnsmasq", site::snponly_by_dnsmasq),
    (
        "program_shim_under_secure_boot",
        programs::shim_under_secure_boot,
    ),
    (
        "program_shim_under_secure_boot_by_http",
        programs::shim_under_secure_boot_by_http,
    ),
    (
        "program_changed_shim_is_refused",
        programs::changed_shim_is_refused,
    ),
    ("program_grub_in_a_vlan", programs::grub_in_a_vlan),
    (
        "program_xen_by_grub_with_modules",
        programs::xen_by_grub_with_modules,
    ),
    (
        "program_grub_with_modules_by_http",
        programs::grub_with_modules_by_http,
    ),
    (
        "program_grub_in_one_file_by_http",
        programs::grub_in_one_file_by_http,
    ),
    ("program_grub_that_asks_dhcp", programs::grub_that_asks_dhcp),
    (
        "program_unified_kernel_image_by_tftp",
        programs::unified_kernel_image_by_tftp,
    ),
    (
        "program_unified_kernel_image_by_http",
        programs::unified_kernel_image_by_http,
    ),
    ("program_memory_test", programs::memory_test),
    (
        "program_lossy_network_under_grub",
        programs::lossy_network_under_grub,
    ),
    (
        "program_processor_hangs_under_grub",
        programs::processor_hangs_under_grub,
    ),
    (
        "program_server_restarts_under_grub",
        programs::server_restarts_under_grub,
    ),
    (
        "each_kind_of_loader_is_measured",
        loaders_measured::each_kind_of_loader_is_measured,
    ),
    ("doctor_spanning_tree", doctor::spanning_tree),
    ("doctor_dhcp_and_blocks", doctor::dhcp_and_blocks),
    ("doctor_loss", doctor::loss),
    ("doctor_no_boot_file", doctor::no_boot_file),
    ("doctor_missing_file", doctor::missing_file),
    ("doctor_lacp", doctor::lacp),
    ("doctor_listens", doctor::listens),
    ("doctor_servers", doctor::servers),
    ("doctor_servers_by_http", doctor::servers_by_http),
    ("doctor_without_a_card", doctor::without_a_card),
    ("doctor_without_a_link", doctor::without_a_link),
    (
        "doctor_second_card_has_the_cable",
        doctor_cards::second_card_has_the_cable,
    ),
    (
        "doctor_servers_by_the_second_card",
        doctor_cards::servers_by_the_second_card,
    ),
    (
        "doctor_ladder_by_the_second_card",
        doctor_cards::ladder_by_the_second_card,
    ),
    (
        "doctor_in_the_firmwares_vlan",
        doctor_cards::in_the_firmwares_vlan,
    ),
    ("doctor_under_secure_boot", doctor::under_secure_boot),
    ("doctor_on_one_processor", doctor::one_processor),
    ("doctor_on_newest_firmware", doctor::newest_firmware),
    ("doctor_dry_boot", doctor::dry_boot),
    ("doctor_dry_boot_by_http", doctor::dry_boot_by_http),
    ("doctor_over_ipv6", doctor::over_ipv6),
    ("doctor_over_undi", doctor::over_undi),
    ("doctor_slow_names", doctor::slow_names),
    ("doctor_calls_and_samples", doctor::calls_and_samples),
    (
        "doctor_profile_as_qemu_sees_it",
        doctor::profile_as_qemu_sees_it,
    ),
    ("doctor_cost", doctor::cost),
    ("doctor_planted", doctor::planted),
    ("doctor_planted_stays", doctor::planted_stays),
    ("doctor_stopped", doctor::stopped),
    ("doctor_dma", doctor::dma),
    ("doctor_uncached_memory", doctor::uncached_memory),
    ("doctor_sweep", doctor::sweep),
    ("recorder_keeps_the_attempts", recorder::keeps_the_attempts),
    (
        "doctor_report_comes_to_the_server",
        doctor::report_comes_to_the_server,
    ),
    ("doctor_from_the_menu", doctor::from_the_menu),
    (
        "doctor_report_lies_on_the_stick",
        doctor::report_lies_on_the_stick,
    ),
    ("doctor_check_that_hangs", doctor::check_that_hangs),
    (
        "iperf3_tcp_of_four_streams",
        throughput::tcp_of_four_streams,
    ),
    ("iperf3_tcp_reverse", throughput::tcp_reverse),
    ("iperf3_udp", throughput::udp),
    ("iperf3_tcp_of_some_bytes", throughput::tcp_of_some_bytes),
    ("doctor_ended_by_esc", doctor::ended_by_esc),
    ("every_rung_is_measured", ladder::every_rung_is_measured),
    ("the_card_sends_what_is_measured", ladder::the_card_sends),
    (
        "every_rung_is_measured_over_ipv6",
        ladder::every_rung_is_measured_over_ipv6,
    ),
    ("instructions_by_phase", instructions::phases_of_a_frame),
    ("instructions_of_services", instructions::of_services),
    ("instructions_of_packets", instructions::of_packets),
    ("one_processor", processors::one_processor),
    ("bsp_by_option", processors::bsp_by_option),
    ("several_engines", processors::several_engines),
    (
        "several_engines_by_hash",
        processors::several_engines_by_hash,
    ),
    (
        "several_engines_over_ipv6",
        processors::several_engines_over_ipv6,
    ),
    (
        "several_engines_by_hash_over_ipv6",
        processors::several_engines_by_hash_over_ipv6,
    ),
    (
        "several_engines_by_configuration",
        processors::several_engines_by_configuration,
    ),
    (
        "more_engines_than_queue_pairs",
        processors::more_engines_than_queue_pairs,
    ),
    ("a_worker_hangs", processors::a_worker_hangs),
    ("processor_hangs", processors::processor_hangs),
    (
        "processor_of_a_relay_hangs",
        processors::processor_of_a_relay_hangs,
    ),
    ("initrd_twice", memory::initrd_twice),
    ("initrd_in_pieces", memory::initrd_in_pieces),
    ("initrd_of_a_gibibyte", memory::initrd_of_a_gibibyte),
    ("initrd_too_large", memory::initrd_too_large),
    ("soak_disturbed_transfers", soak::disturbed_transfers),
    ("soak_disturbed_hand_overs", soak::disturbed_hand_overs),
    ("processor_faults", processors::processor_faults),
    (
        "processor_exhausts_its_stack",
        processors::processor_exhausts_its_stack,
    ),
    ("panic_on_the_bsp", panics::on_the_bsp),
    (
        "panic_on_the_bsp_with_several_engines",
        panics::on_the_bsp_with_several_engines,
    ),
    ("panic_in_the_engine", panics::in_the_engine),
    ("panic_in_a_worker", panics::in_a_worker),
    ("panic_in_an_allocation", panics::in_an_allocation),
    (
        "panic_in_the_initrds_callback",
        panics::in_the_initrds_callback,
    ),
    (
        "panic_at_the_end_of_boot_services",
        panics::at_the_end_of_boot_services,
    ),
    (
        "panic_at_the_end_of_boot_services_under_a_loader",
        panics::at_the_end_of_boot_services_under_a_loader,
    ),
    ("processor_never_stops", panics::never_stops),
    (
        "processor_never_stops_under_grub",
        panics::never_stops_at_the_end_of_boot_services,
    ),
    ("panic_in_the_ladder", panics::in_the_ladder),
    ("panic_in_the_checks", panics::in_the_checks),
    ("signed_boots", secure_boot::signed_boots),
    (
        "distributions_kernel_is_refused",
        secure_boot::distributions_kernel_is_refused,
    ),
    (
        "unsigned_wireboot_is_refused",
        secure_boot::unsigned_wireboot_is_refused,
    ),
];

/// The argument before the name of the one boot that this process is for.
const ALONE: &str = "--alone";

/// Machines wait much of the time, for the firmware's timers or for a server, and a machine that waits takes a processor as one that works does:
/// so many more than the host has processors.
const WAITING: usize = 2;
/// More than this many want more memory than a small host has.
const MOST_AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let result = match arguments.as_slice() {
        [_, alone, name] if alone == ALONE => boot(name).map(|()| ExitCode::SUCCESS),
        _ => boots(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

/// So many boots that failed are made a second time, when nothing else runs: the host may have stood still, or a server's time run out.
/// A fault of ours that comes by chance shows here too, so each is named.
const SECOND_TRIES: usize = 4;
/// Boots in the table of the longest.
const LONGEST: usize = 12;

/// Boots that are a measurement: they need a host that does nothing else, and `--ignored`.
const ON_A_CALM_HOST: &[&str] = &["doctor_profile_as_qemu_sees_it"];

fn is_measurement(name: &str) -> bool {
    ON_A_CALM_HOST.contains(&name)
}

/// How a boot went.
struct TrialOutcome {
    name: &'static str,
    took: Duration,
    failed: bool,
}

/// Adds a name to the file that `WIREBOOT_MADE_AGAIN` names, if it is set.
fn note_made_again(name: &str) -> anyhow::Result<()> {
    let Some(path) = std::env::var_os("WIREBOOT_MADE_AGAIN") else {
        return Ok(());
    };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| writeln!(file, "{name}"));
    written.with_context(|| format!("writing {}", path.display()))
}

/// Several boots side by side, each in a process of its own: a lab has one network.
fn boots() -> anyhow::Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    if arguments.list {
        let trial = |(name, _): &(&'static str, Case)| {
            Trial::test(*name, || Ok(())).with_ignored_flag(is_measurement(name))
        };
        libtest_mimic::run(&arguments, CASES.iter().map(trial).collect()).exit();
    }
    // From inside a lab nothing can be fetched.
    guest::fetch()?;
    wireboot_lab::loaders::fetch()?;
    wireboot_lab::tftpd_hpa::fetch()?;
    wireboot_lab::loaders::fetch_newest_ovmf()?;
    programs::fetch()?;
    controllers::fetch()?;
    let processors = available_parallelism().map_or(1, NonZero::get);
    arguments
        .test_threads
        .get_or_insert((processors + WAITING).min(MOST_AT_ONCE));
    let snapshots = tempfile::tempdir().context("making a directory for snapshots")?;
    let (sender, outcomes) = mpsc::channel();
    let trial = |(name, _): &(&'static str, Case)| {
        let (name, sender) = (*name, sender.clone());
        let snapshots = snapshots.path().to_owned();
        Trial::test(name, move || {
            let began = Instant::now();
            let result = alone(name, &snapshots);
            let outcome = TrialOutcome {
                name,
                took: began.elapsed(),
                failed: result.is_err(),
            };
            sender.send(outcome).map_err(|error| error.to_string())?;
            result.map_err(Failed::from)
        })
        .with_ignored_flag(is_measurement(name))
    };
    let conclusion = libtest_mimic::run(&arguments, CASES.iter().map(trial).collect());
    let mut outcomes: Vec<TrialOutcome> = outcomes.try_iter().collect();
    outcomes.sort_by_key(|outcome| Reverse(outcome.took));
    if outcomes.len() > 1 {
        println!("the longest boots:");
    }
    for TrialOutcome { name, took, .. } in outcomes.iter().take(LONGEST) {
        println!("{:6.1} s  {name}", took.as_secs_f64());
    }
    let failed: Vec<&str> = outcomes
        .iter()
        .filter_map(|outcome| outcome.failed.then_some(outcome.name))
        .collect();
    if failed.len() > SECOND_TRIES {
        return Ok(conclusion.exit_code());
    }
    let mut code = ExitCode::SUCCESS;
    for name in failed {
        match alone(name, snapshots.path()) {
            Ok(()) => {
                println!("{name} failed, and succeeded when made again");
                if let Err(error) = note_made_again(name) {
                    println!("{error:#}");
                }
            }
            Err(error) => {
                println!("{name} failed twice, the second time with {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Starts a boot in a process of its own. The error is what that says.
fn alone(name: &str, snapshots: &Path) -> Result<(), String> {
    let boot = |program| {
        Command::new(program)
            .args([ALONE, name])
            .env(snapshot::DIRECTORY, snapshots)
            .output()
    };
    let output = std::env::current_exe()
        .and_then(boot)
        .map_err(|error| format!("starting the boot: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Makes one boot in this process.
fn boot(name: &str) -> anyhow::Result<()> {
    let (_, case) = CASES
        .iter()
        .find(|(known, _)| *known == name)
        .with_context(|| format!("no boot is called {name}"))?;
    case(&Lab::enter()?)
}

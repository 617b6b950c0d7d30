//! Whole boots: stock firmware, `dist/wireboot.efi`, real servers, a real kernel. Each test asserts what the user sees on the
//! console, and the bytes that came where there are any.

mod aftermath;
mod cards;
mod failures;
mod firmware_drivers;
mod gdb;
mod ipv6;
mod menu;
mod panics;
mod paths;
mod processors;
mod scene;
mod secure_boot;
mod servers;
mod sky;
mod soak;
mod stateless;
mod stick;
mod successes;
mod system;
mod two_versions;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use wireboot_lab::guest;
use wireboot_lab::ip::IpVersion::{V4, V6};
use wireboot_lab::netns::Lab;

type Case = fn(&Lab) -> anyhow::Result<()>;

/// In this order; the plainest first.
const CASES: &[(&str, Case)] = &[
    ("from_our_server", successes::from_our_server),
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
    ("ipv6_is_a_black_hole", two_versions::ipv6_is_a_black_hole),
    ("ipv4_leads_nowhere", two_versions::ipv4_leads_nowhere),
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
    ("no_dhcp_answer", failures::no_dhcp_answer),
    ("server_never_answers", failures::server_never_answers),
    ("truncated_kernel", failures::truncated_kernel),
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
    ("every_rung_is_measured", sky::every_rung_is_measured),
    (
        "every_rung_is_measured_over_ipv6",
        sky::every_rung_is_measured_over_ipv6,
    ),
    ("phases_of_a_frame", sky::phases_of_a_frame),
    ("one_processor", processors::one_processor),
    (
        "boot_processor_by_option",
        processors::boot_processor_by_option,
    ),
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
    ("an_assistant_hangs", processors::an_assistant_hangs),
    ("processor_hangs", processors::processor_hangs),
    (
        "processor_of_a_relay_hangs",
        processors::processor_of_a_relay_hangs,
    ),
    ("soak_disturbed_transfers", soak::disturbed_transfers),
    ("soak_disturbed_hand_overs", soak::disturbed_hand_overs),
    ("processor_faults", processors::processor_faults),
    (
        "processor_exhausts_its_stack",
        processors::processor_exhausts_its_stack,
    ),
    ("panic_on_the_boot_processor", panics::on_the_boot_processor),
    (
        "panic_on_the_boot_processor_with_several_engines",
        panics::on_the_boot_processor_with_several_engines,
    ),
    ("panic_in_the_engine", panics::in_the_engine),
    ("panic_in_an_assistant", panics::in_an_assistant),
    ("panic_in_an_allocation", panics::in_an_allocation),
    (
        "panic_in_the_initrds_callback",
        panics::in_the_initrds_callback,
    ),
    (
        "panic_at_the_end_of_boot_services",
        panics::at_the_end_of_boot_services,
    ),
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

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each needs the whole machine, and they share the lab's network.
    arguments.test_threads = Some(1);
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(None)).exit_code();
    }
    match enter() {
        // For the life of the program: the tests refer to it.
        Ok(lab) => {
            libtest_mimic::run(&arguments, trials(Some(Box::leak(Box::new(lab))))).exit_code()
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Enters the lab with the kernel at hand, which cannot be fetched from inside.
fn enter() -> anyhow::Result<Lab> {
    if !Lab::is_inside() {
        guest::fetch()?;
    }
    Lab::enter()
}

fn trials(lab: Option<&'static Lab>) -> Vec<Trial> {
    let trial = |(name, case): &(&str, Case)| {
        let case = *case;
        Trial::test(*name, move || {
            let lab = lab.ok_or_else(|| Failed::from("there is no lab"))?;
            case(lab).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    CASES.iter().map(trial).collect()
}

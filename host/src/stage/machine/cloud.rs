//! The cloud of a machine, from its firmware (SMBIOS). Advice differs between clouds.

use crate::{Host, HostError};

/// The asset tag of Azure machines. Other machines on Hyper-V do not have it.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

pub(super) fn cloud(host: &Host) -> Result<Option<String>, HostError> {
    let read =
        |name: &str| host.read(&format!("/sys/class/dmi/id/{name}")).map(|text| text.trim().to_owned());
    let vendor = read("sys_vendor")?;
    // A machine without this text is not in a cloud that is recognized by it.
    let text = |name: &str| read(name).unwrap_or_default();
    let texts = [text("product_name"), text("chassis_asset_tag"), text("bios_version")];
    Ok(cloud_name(&vendor, &texts).map(str::to_owned))
}

fn cloud_name(vendor: &str, [product, tag, bios]: &[String; 3]) -> Option<&'static str> {
    match (vendor, product.as_str(), tag.as_str()) {
        ("Amazon EC2", ..) => Some("ec2"),
        // Older EC2 machines, on Xen.
        ("Xen", ..) if bios.contains("amazon") => Some("ec2"),
        ("Google", ..) | (_, "Google Compute Engine", _) => Some("gce"),
        ("Microsoft Corporation", _, AZURE_TAG) => Some("azure"),
        (.., "OracleCloud.com") => Some("oracle"),
        ("Alibaba Cloud", ..) | (_, "Alibaba Cloud ECS", _) => Some("alibaba"),
        ("DigitalOcean", ..) => Some("digitalocean"),
        ("Hetzner", ..) => Some("hetzner"),
        (_, "OpenStack Nova" | "OpenStack Compute", _) => Some("openstack"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;

    fn cloud_of(files: &[(&str, &str)]) -> Known<Option<String>> {
        cloud(&Host::scripted(
            files.iter().map(|(name, text)| (format!("/sys/class/dmi/id/{name}"), format!("{text}\n"))),
        ))
        .into()
    }

    #[test]
    fn clouds_are_detected_from_smbios_fields() {
        let name = |name: &str| Known::Value(Some(name.to_owned()));
        assert_eq!(cloud_of(&[("sys_vendor", "Amazon EC2"), ("product_name", "c7g.large")]), name("ec2"));
        assert_eq!(cloud_of(&[("sys_vendor", "Xen"), ("bios_version", "4.11.amazon")]), name("ec2"));
        assert_eq!(
            cloud_of(&[("sys_vendor", "Google"), ("product_name", "Google Compute Engine")]),
            name("gce")
        );
        let hyper_v = [("sys_vendor", "Microsoft Corporation"), ("product_name", "Virtual Machine")];
        assert_eq!(cloud_of(&hyper_v), Known::Value(None));
        assert_eq!(cloud_of(&[hyper_v[0], hyper_v[1], ("chassis_asset_tag", AZURE_TAG)]), name("azure"));
        assert_eq!(cloud_of(&[("sys_vendor", "Supermicro"), ("product_name", "X9DRT")]), Known::Value(None));
    }

    #[test]
    fn cloud_is_unknown_without_smbios_fields() {
        assert!(cloud_of(&[]).why_contains("/sys/class/dmi/id/sys_vendor"));
    }
}

use super::*;
use crate::render::style::TextStyle;
use linerate_host::{Host, HostView, PacketPath, Scope};

#[test]
fn text_of_the_host_cannot_become_markup() {
    let name = "<script>alert(1)</script>&\"";
    let host = Host::scripted([
        ("/proc/sys/kernel/osrelease".to_owned(), format!("4.6.3{name}\n")),
        ("/proc/cpuinfo".to_owned(), format!("processor : 0\nmodel name : {name}\n")),
    ]);
    let path = PacketPath::observe(&host, &Scope::default());
    let view = HostView::once(&path);
    let diagnosis = linerate_host::Diagnosis::of(&view);
    let document = DoctorDocument::about(&view, &diagnosis, None, false);
    let page = doctor(&document).expect("a page");
    assert!(!page.contains("<script") && page.contains("4.6.3"), "{page}");
    let text = crate::render::doctor_text::doctor(&document, true, TextStyle { width: 80, colour: false });
    assert!(text.contains("things could not be seen"), "{text}");
}

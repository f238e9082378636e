//! A simulated user at a terminal: agrees to changes and keeps them, and presses Enter to confirm.

use std::io::{Read as _, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::mark::InterruptTrigger;

/// A question on the screen, and the keys for it. The first one counts.
///
/// The service may be worse only because of other tests that use the CPUs.
const ANSWERS: [(&str, &[u8]); 3] =
    [("undo the changes? [y/N] ", b"n\n"), ("[y/N] ", b"y\n"), ("Enter", b"\n")];

/// A simulated user at a terminal.
pub(crate) struct TerminalUser {
    keyboard: Arc<Mutex<ChildStdin>>,
    reader: JoinHandle<String>,
}

impl TerminalUser {
    /// Starts to read the screen.
    pub(crate) fn start(
        keyboard: ChildStdin,
        mut screen: ChildStdout,
        interrupt: Option<&InterruptTrigger>,
    ) -> Self {
        let mut trigger = match interrupt {
            Some(InterruptTrigger::Shown(text)) => Some(text.clone()),
            _ => None,
        };
        let keyboard = Arc::new(Mutex::new(keyboard));
        let writer = Arc::clone(&keyboard);
        let reader = std::thread::spawn(move || {
            let mut output = Vec::new();
            let mut answered = 0;
            let mut buffer = [0; 4096];
            while let Ok(bytes @ 1..) = screen.read(&mut buffer) {
                output.extend_from_slice(&buffer[..bytes]);
                let text = String::from_utf8_lossy(&output[answered..]).into_owned();
                if trigger.take_if(|trigger| text.contains(trigger.as_str())).is_some() {
                    let _ = writer.lock().expect("the keyboard").write_all(b"\x03");
                }
                let matching = ANSWERS.iter().find(|(question, _)| text.contains(question));
                if let Some((_, answer)) = matching {
                    answered = output.len();
                    let _ = writer.lock().expect("the keyboard").write_all(answer);
                }
            }
            String::from_utf8_lossy(&output).replace('\r', "")
        });
        Self { keyboard, reader }
    }

    /// Sends the byte of the key.
    pub(crate) fn press_ctrl_c(&self) {
        let _ = self.keyboard.lock().expect("the keyboard").write_all(b"\x03");
    }

    /// All text on the screen, once the output has ended.
    pub(crate) fn screen_text(self) -> String {
        self.reader.join().unwrap_or_default()
    }
}

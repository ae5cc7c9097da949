//! Asking a person: what is asked, and the trait that does it. The terminal and SSH_ASKPASS are in
//! `driver`.

pub use fullbore_ssh::key::Secret;
use zeroize::Zeroizing;

/// A secret that is wiped when dropped.
pub type SecretText = Zeroizing<String>;

/// Asks a person.
pub trait Prompter {
    /// Asks for a secret, unseen while typed. None when nobody can be asked (BatchMode, no terminal)
    /// or the question was refused.
    fn secret(&mut self, question: &str) -> Option<SecretText>;
    /// Asks for text, seen while typed.
    fn text(&mut self, question: &str) -> Option<SecretText>;
    /// Shows a message.
    fn tell(&mut self, message: &str);
}

/// Asks nobody: BatchMode.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPrompter;

impl Prompter for NoPrompter {
    fn secret(&mut self, _question: &str) -> Option<SecretText> {
        None
    }

    fn text(&mut self, _question: &str) -> Option<SecretText> {
        None
    }

    fn tell(&mut self, _message: &str) {}
}

/// What the user says about an unknown host key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstUse {
    /// Connect and remember the key.
    Accept,
    /// Do not connect.
    Refuse,
}

/// How many times an unclear answer is asked again. Ours.
const ASK_TIMES_MAX: usize = 5;

/// The question of a first connection. The user may also type the fingerprint, which is compared.
pub fn ask_first_use(
    prompter: &mut dyn Prompter,
    host: &str,
    algorithm: &str,
    fingerprint: &str,
) -> FirstUse {
    let mut question = format!(
        "The authenticity of host '{host}' can't be established.\n\
         {algorithm} key fingerprint is {fingerprint}.\n\
         Are you sure you want to continue connecting (yes/no/[fingerprint])? "
    );
    for _ in 0..ASK_TIMES_MAX {
        let Some(answer) = prompter.text(&question) else {
            return FirstUse::Refuse;
        };
        let answer = answer.trim();
        if answer.eq_ignore_ascii_case("yes") || answer == fingerprint {
            return FirstUse::Accept;
        }
        if answer.eq_ignore_ascii_case("no") || answer.is_empty() {
            return FirstUse::Refuse;
        }
        question = "Please type 'yes', 'no' or the fingerprint: ".to_owned();
    }
    FirstUse::Refuse
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script(Vec<&'static str>);

    impl Prompter for Script {
        fn secret(&mut self, question: &str) -> Option<SecretText> {
            self.text(question)
        }

        fn text(&mut self, _question: &str) -> Option<SecretText> {
            if self.0.is_empty() {
                return None;
            }
            Some(Zeroizing::new(self.0.remove(0).to_owned()))
        }

        fn tell(&mut self, _message: &str) {}
    }

    fn ask(answers: &[&'static str]) -> FirstUse {
        ask_first_use(&mut Script(answers.to_vec()), "h", "ED25519", "SHA256:abc")
    }

    #[test]
    fn only_yes_or_the_fingerprint_is_consent() {
        assert_eq!(ask(&["yes"]), FirstUse::Accept);
        assert_eq!(ask(&["SHA256:abc"]), FirstUse::Accept);
        assert_eq!(ask(&["SHA256:ABC", "y", "no"]), FirstUse::Refuse);
        assert_eq!(ask(&["what", "yes"]), FirstUse::Accept);
        assert_eq!(ask(&[""]), FirstUse::Refuse);
        assert_eq!(ask(&[]), FirstUse::Refuse);
        assert_eq!(ask(&["x"; 6]), FirstUse::Refuse);
        assert_eq!(
            ask_first_use(&mut NoPrompter, "h", "a", "f"),
            FirstUse::Refuse
        );
    }
}

//! Questions to the user: keyboard-interactive's, and the one for a new password.

use super::{PASSWORD_BYTES_MAX, PROMPT_BYTES_MAX, PROMPTS_MAX, Secret};
use crate::error::{Error, PeerMisbehaved};
use crate::msg::{SSH_MSG_USERAUTH_INFO_RESPONSE, SSH_MSG_USERAUTH_PK_OK};
use crate::wire::{Put, Reader};

/// Why the user is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    /// RFC 4256: the server's own questions.
    KeyboardInteractive,
    /// RFC 4252 8: the password has expired; the one prompt is for the new one.
    PasswordChange,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// What to show. The server's words: escape control characters before showing them.
    pub text: String,
    /// Whether the answer may be seen while it is typed.
    pub echo: bool,
}

/// Questions that are asked together. All texts are the server's: escape before showing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    /// Why the user is asked.
    pub kind: PromptKind,
    /// A heading, or empty.
    pub name: String,
    /// What to show above the prompts, or empty.
    pub instruction: String,
    /// In order; may be none: then the answers are none too.
    pub prompts: Vec<Prompt>,
}

impl Prompts {
    /// One question of keyboard-interactive for a password.
    #[must_use]
    pub fn password(text: &str) -> Self {
        Self {
            kind: PromptKind::KeyboardInteractive,
            name: String::new(),
            instruction: String::new(),
            prompts: vec![Prompt {
                text: text.to_owned(),
                echo: false,
            }],
        }
    }

    /// RFC 4256 3.2: what follows the message number.
    pub(super) fn parse(mut message: Reader<'_>) -> Result<Self, Error> {
        let name = text(&mut message)?;
        let instruction = text(&mut message)?;
        let _language = message.string()?;
        let count = message.u32()?;
        if usize::try_from(count).map_or(true, |count| count > PROMPTS_MAX) {
            return Err(PeerMisbehaved::TooManyRequests.into());
        }
        let mut prompts = Vec::new();
        for _ in 0..count {
            prompts.push(Prompt {
                text: text(&mut message)?,
                echo: message.bool()?,
            });
        }
        message.finish()?;
        Ok(Self {
            kind: PromptKind::KeyboardInteractive,
            name,
            instruction,
            prompts,
        })
    }

    /// RFC 4252 8: PASSWD_CHANGEREQ, behind the message number.
    pub(super) fn parse_password_change(mut message: Reader<'_>) -> Result<Self, Error> {
        let instruction = text(&mut message)?;
        let _language = message.string()?;
        message.finish()?;
        Ok(Self {
            kind: PromptKind::PasswordChange,
            name: String::new(),
            instruction,
            prompts: vec![Prompt {
                text: "New password: ".to_owned(),
                echo: false,
            }],
        })
    }

    /// INFO_REQUEST, or PASSWD_CHANGEREQ with the instruction as its text.
    pub(super) fn to_message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // 60 is INFO_REQUEST and PASSWD_CHANGEREQ too: the method in progress tells them apart.
        out.put_u8(SSH_MSG_USERAUTH_PK_OK);
        if self.kind == PromptKind::PasswordChange {
            out.put_string(self.instruction.as_bytes());
            out.put_string(b"");
            return out;
        }
        out.put_string(self.name.as_bytes());
        out.put_string(self.instruction.as_bytes());
        out.put_string(b"");
        out.put_u32(u32::try_from(self.prompts.len()).expect("PROMPTS_MAX bounds them"));
        for prompt in &self.prompts {
            out.put_string(prompt.text.as_bytes());
            out.put_bool(prompt.echo);
        }
        out
    }
}

/// RFC 4256 3.4.
pub(super) fn put_answers(out: &mut Vec<u8>, answers: &[Secret]) {
    out.put_u8(SSH_MSG_USERAUTH_INFO_RESPONSE);
    out.put_u32(u32::try_from(answers.len()).expect("PROMPTS_MAX bounds them"));
    for answer in answers {
        out.put_string(answer.expose());
    }
}

/// Behind the message number; exactly `count` answers must be there.
pub(super) fn parse_answers(mut message: Reader<'_>, count: usize) -> Result<Vec<Secret>, Error> {
    if usize::try_from(message.u32()?) != Ok(count) {
        return Err(PeerMisbehaved::AuthSequence.into());
    }
    let mut answers = Vec::with_capacity(count);
    for _ in 0..count {
        answers.push(Secret::from(message.string_max(PASSWORD_BYTES_MAX)?));
    }
    message.finish()?;
    Ok(answers)
}

fn text(message: &mut Reader<'_>) -> Result<String, Error> {
    let bytes = message.string_max(PROMPT_BYTES_MAX)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

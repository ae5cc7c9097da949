//! Asking the person: on a thread of its own, so that connections stay alive and an interrupt works
//! while nobody answers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use fullbore_ssh::key::Secret;

use crate::config::prompt::{FirstUse, NoPrompter, Prompter, ask_first_use};

/// Whoever answers questions. Clones share it; one question at a time.
#[derive(Clone)]
pub struct Asker {
    prompter: Rc<RefCell<Option<Box<dyn Prompter + Send>>>>,
    /// Secrets and the like that were asked for, by all clones.
    asked_count: Rc<Cell<u64>>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker(..)")
    }
}

impl Asker {
    /// Asks through `prompter`.
    #[must_use]
    pub fn new(prompter: Box<dyn Prompter + Send>) -> Self {
        Self {
            prompter: Rc::new(RefCell::new(Some(prompter))),
            asked_count: Rc::default(),
        }
    }

    /// Asks nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new(Box::new(NoPrompter))
    }

    /// Asks for something that is not shown while it is typed.
    pub(super) async fn secret(&self, question: String) -> Option<Secret> {
        self.asked_count.set(self.asked_count.get() + 1);
        self.ask(move |prompter| prompter.secret(&question))
            .await
            .flatten()
            .map(|text| Secret::new(text.as_bytes().to_vec()))
    }

    /// Asks for something that may be seen.
    pub(super) async fn text(&self, question: String) -> Option<Secret> {
        self.asked_count.set(self.asked_count.get() + 1);
        self.ask(move |prompter| prompter.text(&question))
            .await
            .flatten()
            .map(|text| Secret::new(text.as_bytes().to_vec()))
    }

    /// How often something was asked for that somebody had to type.
    pub(super) fn asked_count(&self) -> u64 {
        self.asked_count.get()
    }

    /// Shows a message.
    pub(super) async fn tell(&self, message: String) {
        self.ask(move |prompter| prompter.tell(&message)).await;
    }

    /// Asks whether an unknown host key is the right one.
    pub(super) async fn first_use(
        &self,
        host: String,
        algorithm: String,
        fingerprint: String,
    ) -> FirstUse {
        self.ask(move |prompter| ask_first_use(prompter, &host, &algorithm, &fingerprint))
            .await
            .unwrap_or(FirstUse::Refuse)
    }

    /// `None` when another question is open: two logins at once, of which only one can be asked.
    async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Prompter) -> R + Send + 'static,
    ) -> Option<R> {
        let mut prompter = self.prompter.borrow_mut().take()?;
        let asked = tokio::task::spawn_blocking(move || {
            let answer = question(&mut *prompter);
            (prompter, answer)
        });
        let (prompter, answer) = asked.await.ok()?;
        *self.prompter.borrow_mut() = Some(prompter);
        Some(answer)
    }
}

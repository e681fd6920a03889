// Shows what the server renders, as soon as something happened. Without this script the page is
// the same and reloads itself.
"use strict";
(() => {
  const PAUSE = 400; // ms: however fast things happen, the page changes no faster
  const AWAY = 10000; // ms, when we cannot be reached
  const status = document.getElementById("status");
  const live = document.getElementById("live");
  const told = document.getElementById("told");
  if (!status || !status.dataset.events) return;

  const source = new EventSource(status.dataset.events);
  let due = 0;
  let said = "";

  const say = (words) => {
    live.textContent = words;
    live.hidden = false;
  };

  const sentence = (root) =>
    [root.querySelector("h1"), root.querySelector("#sentence")]
      .map((one) => (one ? one.textContent.trim() : ""))
      .filter(Boolean)
      .join(". ");

  const replace = (fresh) => {
    const before = document.getElementById("status");
    for (const details of before.querySelectorAll("details[id]")) {
      const same = fresh.querySelector(`#${CSS.escape(details.id)}`);
      if (same) same.open = details.open;
    }
    const focused = document.activeElement && before.contains(document.activeElement)
      ? document.activeElement.closest("[id]") : null;
    before.replaceWith(fresh);
    if (focused && focused.id) {
      const again = document.getElementById(focused.id);
      const target = again && (again.matches("details") ? again.querySelector("summary") : again);
      if (target) target.focus({ preventScroll: true });
    }
  };

  const show = async () => {
    due = 0;
    const answer = await fetch(status.dataset.self, { cache: "no-store" });
    if (answer.status === 403 || answer.status === 410) {
      location.replace(status.dataset.self); // the link has expired: the server says it kindly
      return;
    }
    if (!answer.ok) {
      later(AWAY);
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("status");
    if (!fresh) return;
    document.title = page.title;
    replace(document.importNode(fresh, true));
    const now = sentence(fresh);
    if (now !== said) told.textContent = said = now;
    if (!fresh.dataset.events) {
      source.close();
      live.hidden = true;
    } else if (source.readyState === EventSource.CLOSED) {
      later(AWAY); // no place for a stream: look again from time to time
    }
  };

  const later = (pause = PAUSE) => {
    if (!due) due = setTimeout(() => show().catch(() => later(AWAY)), pause);
  };

  said = sentence(status);
  source.addEventListener("changed", () => later());
  source.addEventListener("open", () => say(live.dataset.live));
  source.addEventListener("error", () => {
    say(live.dataset.lost);
    if (source.readyState === EventSource.CLOSED) later(); // it has ended, or we may not see it
  });
})();

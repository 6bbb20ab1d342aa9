// The pages follow the ledger: after a change of it, the content is read again from the server.
"use strict";
(() => {
  const body = document.body, banner = document.getElementById("banner"), button = document.getElementById("live");
  document.addEventListener("keydown", (e) => {
    const search = document.getElementById("search");
    if (e.key === "/" && search && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      e.preventDefault();
      search.focus();
    }
  });
  if (!("live" in body.dataset) || !window.EventSource) return;
  let isLive = true, isBusy = false, isDue = false, isLost = false, hasEnded = false, last = 0, source = null;
  const show = (text) => { banner.textContent = text; banner.hidden = text === ""; };
  const isUsed = () => {
    const active = document.activeElement, content = document.getElementById("content");
    return content.querySelector("input[type=checkbox]:checked") !== null ||
      (content.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName));
  };
  const script = (page) => page.querySelector("script[src]").getAttribute("src");
  // A page that is used is not replaced. While the stream is lost it is read nevertheless, to show the reason.
  const read = async () => {
    if (isBusy || !isLive || document.hidden || (isUsed() && !isLost)) return;
    isBusy = true; isDue = false; last = Date.now();
    try {
      // A server that hangs keeps the connection open: without a limit the page would never be read again.
      const answer = await fetch(location.href, { credentials: "same-origin", signal: AbortSignal.timeout(20000) });
      if (answer.status === 401) {
        isLive = false; hasEnded = true;
        source.close();
        show("The session has ended. Reload the page to sign in; a form that is sent now changes nothing.");
        return;
      }
      if (!answer.ok) { show(`The server answers with status ${answer.status}. The page is read again every few seconds.`); return; }
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      show("");
      if (isLost && source.readyState === EventSource.CLOSED) follow();
      if (isUsed()) { isDue = true; return; }
      if (script(next) !== script(document)) { location.reload(); return; } // the server has another version now
      const open = [...document.querySelectorAll("details[open]")].map((d) => d.id);
      for (const part of ["content"]) document.getElementById(part).replaceWith(next.getElementById(part));
      document.querySelector("header").replaceWith(next.querySelector("header"));
      document.querySelector(".at").firstChild.replaceWith(next.querySelector(".at").firstChild);
      for (const id of open) { const d = document.getElementById(id); if (d) d.open = true; }
    } catch { show("The server does not answer. The page is read again when it does."); } finally { isBusy = false; }
  };
  // The browser opens a stream again that breaks off, but not one whose answer was an error.
  const follow = () => {
    source = new EventSource(body.dataset.base + "stream");
    source.addEventListener("change", () => { isDue = true; });
    source.addEventListener("open", () => { isLost = false; isDue = true; });
    source.addEventListener("error", () => { isLost = true; isDue = true; });
  };
  // A browser opens at most six connections to a server by HTTP/1.1: a page in the background holds none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (!hasEnded) { source.close(); follow(); isDue = true; }
  });
  follow();
  if (document.hidden) source.close();
  setInterval(() => {
    const age = Date.now() - last;
    if (age > (isLost ? 5000 : 15000) || isDue && age > 2000) read();
  }, 500);
  last = Date.now();
  button.hidden = false;
  button.addEventListener("click", () => {
    isLive = !isLive;
    button.setAttribute("aria-pressed", String(isLive));
    button.textContent = isLive ? "live" : "paused";
  });
})();

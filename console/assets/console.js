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
  let isLive = true, isBusy = false, isDue = false, last = 0;
  const show = (text) => { banner.textContent = text; banner.hidden = text === ""; };
  const isUsed = () => {
    const active = document.activeElement, content = document.getElementById("content");
    return content.querySelector("input[type=checkbox]:checked") !== null ||
      (content.contains(active) && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName));
  };
  const read = async () => {
    if (isBusy || !isLive || document.hidden || isUsed()) return;
    isBusy = true; isDue = false; last = Date.now();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.status === 401) { isLive = false; show("The session has ended. Reload the page to sign in."); return; }
      if (!answer.ok) { show("The page cannot be read again: status " + answer.status); return; }
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (isUsed()) { isDue = true; return; }
      const open = [...document.querySelectorAll("details[open]")].map((d) => d.id);
      for (const part of ["content"]) document.getElementById(part).replaceWith(next.getElementById(part));
      document.querySelector("header").replaceWith(next.querySelector("header"));
      document.querySelector(".at").firstChild.replaceWith(next.querySelector(".at").firstChild);
      for (const id of open) { const d = document.getElementById(id); if (d) d.open = true; }
      show("");
    } catch { show("The server does not answer. The page is read again when it does."); } finally { isBusy = false; }
  };
  const source = new EventSource(body.dataset.base + "stream");
  source.addEventListener("change", () => { isDue = true; });
  source.addEventListener("open", () => { isDue = true; });
  source.addEventListener("error", () => { if (isLive) isDue = true; });
  setInterval(() => { if (isDue && Date.now() - last > 2000 || Date.now() - last > 15000) read(); }, 500);
  last = Date.now();
  button.hidden = false;
  button.addEventListener("click", () => {
    isLive = !isLive;
    button.setAttribute("aria-pressed", String(isLive));
    button.textContent = isLive ? "live" : "paused";
  });
})();

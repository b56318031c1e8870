"use strict";
// The button that switches between light and dark colours.
(() => {
  const root = document.documentElement, theme = document.getElementById("theme");
  const name = () => { theme.textContent = jt.dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to ${jt.dark() ? "light" : "dark"} colours`); };
  jt.choose = (value) => { if (value) root.dataset.theme = value; else delete root.dataset.theme; name(); jt.redraw(); };
  theme.addEventListener("click", () => jt.choose(jt.dark() ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); jt.redraw(); });
  theme.hidden = false;
  name();
})();

// Dark or light: the system's choice, until the button is pressed; then that of this browser. Runs before the page is
// drawn, so that it does not flash.
"use strict";
const kept = localStorage.getItem("theme");
if (kept) document.documentElement.dataset.theme = kept;
addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
});

// Before the first paint, so that a page that was chosen dark does not flash: "light", "dark", or
// as the system has it.
try {
  const chosen = localStorage.getItem("raftsched.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the system decides.
}

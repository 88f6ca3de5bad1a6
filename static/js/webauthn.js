// Security keys: asks the browser's authenticator, and sends its response with the form.

const bytes = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
const text = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const named = (list) => (list || []).map((one) => ({ ...one, id: bytes(one.id) }));
const wanted = (kind, options) => ({
  ...options,
  challenge: bytes(options.challenge),
  ...(kind === "create"
    ? {
        user: { ...options.user, id: bytes(options.user.id) },
        excludeCredentials: named(options.excludeCredentials),
      }
    : { allowCredentials: named(options.allowCredentials) }),
});

const ANSWERS = ["attestationObject", "authenticatorData", "clientDataJSON", "signature", "userHandle"];
const answered = (credential) => ({
  id: credential.id,
  rawId: text(credential.rawId),
  type: credential.type,
  clientExtensionResults: {},
  response: Object.fromEntries(
    ANSWERS.filter((name) => credential.response[name])
      .map((name) => [name, text(credential.response[name])])),
});

const REASONS = {
  InvalidStateError: "That key is set up already.",
  NotAllowedError: "The key was not used. Try again when it is at hand.",
  SecurityError: "The browser uses no key at this address.",
};

const ask = async (form, button) => {
  const flaw = form.querySelector("[data-key-flaw]");
  if (form.dataset.webauthn === "create" && !form.reportValidity()) return;
  flaw.textContent = "";
  button.disabled = true;
  try {
    const publicKey = wanted(form.dataset.webauthn, JSON.parse(form.dataset.options));
    const credential = await navigator.credentials[form.dataset.webauthn]({ publicKey });
    form.querySelector("[name='key'], [name='again.key']").value = JSON.stringify(answered(credential));
    HTMLFormElement.prototype.submit.call(form);
  } catch (error) {
    flaw.textContent = REASONS[error.name] || "The key could not be used. Try again.";
    button.disabled = false;
  }
};

if (window.PublicKeyCredential) {
  document.querySelectorAll("form[data-webauthn]").forEach((form) => {
    const button = form.querySelector("[data-asks-key]");
    button.hidden = false;
    form.querySelectorAll("[data-key-missing]").forEach((said) => { said.hidden = true; });
    button.addEventListener("click", () => ask(form, button));
  });
}

// Runs `streamsafe server` for Python files and notebooks.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = async () => {
  const settings = workspace.getConfiguration("streamsafe");
  client = new LanguageClient(
    "streamsafe",
    "streamsafe",
    { command: settings.get("command"), args: ["server"] },
    {
      documentSelector: [{ scheme: "file", language: "python" }],
      initializationOptions: settings.get("settings"),
    },
  );
  await client.start();
};

exports.deactivate = () => client && client.stop();

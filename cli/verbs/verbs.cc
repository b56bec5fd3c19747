#include "cli/verbs/verbs.h"

namespace trainyard::cli {

const std::vector<Verb>& Verbs() {
  static const std::vector<Verb>* const kVerbs = new std::vector<Verb>{
      UpVerb(),
      SubmitVerb(),
      GetVerb(),
      ListVerb(),
      CancelVerb(),
      WatchVerb(),
      LogsVerb(),
      EventsVerb(),
      StepsVerb(),
      ExportStepsVerb(),
      WorkersVerb(),
      HealthVerb(),
      ModelsVerb(),
      FlopsVerb(),
      RecipesVerb(),
      GenerateVerb(),
      EvaluateVerb(),
      ImportVerb(),
      ExportVerb(),
      CheckpointListVerb(),
      CheckpointInspectVerb(),
      CheckpointDigestVerb(),
      CheckpointVerifyVerb(),
      LoginVerb(),
      LogoutVerb(),
      WhoAmIVerb(),
      TokenCreateVerb(),
      TokenListVerb(),
      TokenRevokeVerb(),
      AuditVerb(),
      CompletionVerb(),
  };
  return *kVerbs;
}

}  // namespace trainyard::cli

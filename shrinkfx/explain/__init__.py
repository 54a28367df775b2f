"""FROM THE FAILURE TO ITS CAUSE: what a minimum is asked, and what that says. No torch."""
